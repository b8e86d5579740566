// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/shm/shm_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <stdexcept>

#include "accordion/comm/elements.h"
#include "accordion/comm/fake/fake_communicator.h"
#include "accordion/comm/shm/allocation.h"
#include "accordion/comm/shm/call_identity.h"
#include "accordion/comm/shm/direct_operations.h"
#include "accordion/comm/shm/staged_operations.h"

namespace accordion {
namespace detail {
namespace {

class ShmCommunicator final : public Communicator {
 public:
  ShmCommunicator(std::unique_ptr<RankLink> link, const ShmOptions& options)
      : link_(std::move(link)),
        control_(
            *reinterpret_cast<ControlBlock*>(link_->control_memory().data()),
            *link_, options),
        context_{options.rank, options.world_size, *link_, control_,
                 [this] { progress(); }} {}

  int rank() const override { return context_.rank; }
  int world_size() const override { return context_.world_size; }
  std::string_view backend() const override { return "shm"; }
  const CommCounters& counters() const override { return counters_; }
  std::chrono::milliseconds timeout() const override {
    return control_.timeout();
  }

  bool shares_common_memory() const override { return true; }
  std::unique_ptr<CommBuffer> allocate_common(std::int64_t bytes,
                                              std::string_view label) override {
    return allocate(BufferKind::Common, bytes, label);
  }
  std::unique_ptr<CommBuffer> allocate_exported(
      std::int64_t bytes, std::string_view label) override {
    return allocate(BufferKind::Exported, bytes, label);
  }

  void acquire(CommBuffer& buffer) override;
  void release(CommBuffer& buffer) override;

  Work all_gather_into(std::span<const GatherPart> parts, CommBuffer* buffer,
                       std::string_view label) override;
  Work reduce_scatter_into(std::span<const ReducePart> parts,
                           CommBuffer* buffer, std::string_view label) override;
  Work all_reduce(std::span<const ReducePart> parts, CommBuffer* buffer,
                  std::string_view label) override;
  void broadcast(void* data, std::int64_t bytes, int root,
                 std::string_view label) override;
  void barrier(std::string_view label) override;
  void abandon(std::string_view reason) override { control_.abandon(reason); }

  /// Completes `operation` and those that must come before it: earlier ones of
  /// its kind, and earlier ones in the staging area where it is used.
  void complete(const Operation& operation);

 private:
  std::unique_ptr<CommBuffer> allocate(BufferKind kind, std::int64_t bytes,
                                       std::string_view label);
  void progress();
  std::uint64_t begin_call(CommOp op, std::string_view label,
                           std::int64_t bytes, std::uint64_t hash);
  std::shared_ptr<Segment> segment_of(CommBuffer& buffer,
                                      std::string_view where) const;
  std::shared_ptr<Segment> segment_for(CommBuffer* buffer, BufferKind kind,
                                       std::string_view where) const;
  Work in_flight(std::shared_ptr<Operation> operation);

  std::unique_ptr<RankLink> link_;
  Control control_;
  ShmContext context_;
  CommCounters counters_;
  int num_buffers_ = 0;
  std::deque<std::shared_ptr<Operation>> outstanding_;   // in order of issue
  std::deque<std::shared_ptr<DirectGather>> unwritten_;  // in order of issue
};

class ShmWork final : public Work::State {
 public:
  ShmWork(ShmCommunicator& communicator, std::shared_ptr<Operation> operation)
      : communicator_(communicator), operation_(std::move(operation)) {}
  void wait() override { communicator_.complete(*operation_); }
  std::string describe() const override {
    return fmt::format("{} '{}' on rank {}", name(operation_->op()),
                       operation_->label(), communicator_.rank());
  }

 private:
  ShmCommunicator& communicator_;
  std::shared_ptr<Operation> operation_;
};

// All-gathers whose buffer a peer was still reading when they were issued are
// written at the next opportunity: any call of this communicator, or while it
// waits. Not after a failure, which may have freed what they read.
void ShmCommunicator::progress() {
  while (!control_.failed() && !unwritten_.empty() &&
         unwritten_.front()->try_write()) {
    unwritten_.pop_front();
  }
}

void ShmCommunicator::complete(const Operation& operation) {
  // Walks back from the operation, collecting what must come first.
  std::vector<std::shared_ptr<Operation>> first;
  std::uint32_t kinds = 1u << static_cast<int>(operation.op());
  bool staged = operation.staged();
  auto place = std::find_if(
      outstanding_.begin(), outstanding_.end(),
      [&](const auto& other) { return other.get() == &operation; });
  if (place == outstanding_.end()) {
    return;  // completed on the way to a later one
  }
  for (++place; place != outstanding_.begin();) {
    --place;
    const std::uint32_t kind = 1u << static_cast<int>((*place)->op());
    if ((kinds & kind) != 0 || (staged && (*place)->staged())) {
      kinds |= kind;
      staged |= (*place)->staged();
      first.push_back(*place);
    }
  }
  control_.check_usable();
  progress();
  for (auto next = first.rbegin(); next != first.rend(); ++next) {
    (*next)->complete();
  }
  std::erase_if(outstanding_,
                [](const auto& other) { return other->completed(); });
}

std::uint64_t ShmCommunicator::begin_call(CommOp op, std::string_view label,
                                          std::int64_t bytes,
                                          std::uint64_t hash) {
  control_.check_usable();
  progress();
  const auto same_kind =
      std::count_if(outstanding_.begin(), outstanding_.end(),
                    [op](const auto& other) { return other->op() == op; });
  if (same_kind >= kMaxOutstanding) {
    throw std::logic_error(fmt::format(
        "[{}] '{}': {} calls are in flight already; wait for the first before "
        "starting more",
        name(op), label, same_kind));
  }
  const auto index = static_cast<std::size_t>(op);
  counters_.calls[index] += 1;
  counters_.bytes[index] += bytes;
  const std::uint64_t call = control_.own(posted(op)) + 1;
  control_.post(op, call, label, bytes, hash);
  return call;
}

Work ShmCommunicator::in_flight(std::shared_ptr<Operation> operation) {
  outstanding_.push_back(operation);
  return Work(std::make_unique<ShmWork>(*this, std::move(operation)));
}

std::shared_ptr<Segment> ShmCommunicator::segment_of(
    CommBuffer& buffer, std::string_view where) const {
  const auto* ours = dynamic_cast<ShmBuffer*>(&buffer);
  if (ours == nullptr || ours->segment()->communicator != this) {
    throw std::invalid_argument(
        fmt::format("[{}] the buffer belongs to another communicator", where));
  }
  return ours->segment();
}

std::shared_ptr<Segment> ShmCommunicator::segment_for(
    CommBuffer* buffer, BufferKind kind, std::string_view where) const {
  if (buffer == nullptr) {
    return nullptr;
  }
  std::shared_ptr<Segment> segment = segment_of(*buffer, where);
  if (segment->kind != kind) {
    throw std::invalid_argument(fmt::format(
        "[{}] buffer '{}' is of the wrong kind: an all-gather needs one of "
        "allocate_common, a reduction one of allocate_exported",
        where, segment->label));
  }
  return segment;
}

void ShmCommunicator::acquire(CommBuffer& buffer) {
  const std::shared_ptr<Segment> segment = segment_of(buffer, "acquire");
  if (control_.own(done(segment->id)) < segment->uses) {
    throw std::logic_error(fmt::format(
        "[acquire] buffer '{}' is in use by this rank itself: wait for {} call "
        "{} and release the buffer first",
        segment->label, name(segment->last_op), segment->last_call));
  }
  progress();
  control_.wait(
      {done(segment->id), segment->uses, segment->last_op, segment->label,
       segment->last_call, "for every rank to finish reading the buffer"},
      context_.progress);
}

void ShmCommunicator::release(CommBuffer& buffer) {
  const std::shared_ptr<Segment> segment = segment_of(buffer, "release");
  if (segment->kind == BufferKind::Exported) {
    return;  // the reduction's completion said so
  }
  if (segment->finished < segment->uses) {
    throw std::logic_error(
        fmt::format("[release] an all-gather into buffer '{}' is in flight: "
                    "wait for it first",
                    segment->label));
  }
  control_.publish(done(segment->id), segment->uses);
  progress();
}

Work ShmCommunicator::all_gather_into(std::span<const GatherPart> parts,
                                      CommBuffer* buffer,
                                      std::string_view label) {
  const auto segment =
      segment_for(buffer, BufferKind::Common, "all_gather_into");
  for (const GatherPart& part : parts) {
    check_part(part, "all_gather_into");
    if (buffer != nullptr) {
      check_in_buffer(part.full, full_bytes({&part, 1}, world_size()), *buffer,
                      "all_gather_into");
    }
  }
  if (segment && control_.own(done(segment->id)) < segment->uses) {
    throw std::logic_error(
        fmt::format("[all_gather_into] '{}': this rank has not released buffer "
                    "'{}' since the all-gather before",
                    label, segment->label));
  }
  const std::uint64_t call =
      begin_call(CommOp::AllGather, label, full_bytes(parts, world_size()),
                 hash_call(label, parts, segment.get(), rank()));
  if (!segment) {
    return in_flight(
        std::make_shared<StagedGather>(context_, call, label, parts));
  }
  segment->last_op = CommOp::AllGather;
  segment->last_call = call;
  auto gather =
      std::make_shared<DirectGather>(context_, call, label, parts, segment);
  unwritten_.push_back(gather);
  progress();
  return in_flight(std::move(gather));
}

Work ShmCommunicator::reduce_scatter_into(std::span<const ReducePart> parts,
                                          CommBuffer* buffer,
                                          std::string_view label) {
  const auto segment =
      segment_for(buffer, BufferKind::Exported, "reduce_scatter_into");
  for (const ReducePart& part : parts) {
    check_part(part, "reduce_scatter_into");
    if (buffer != nullptr) {
      check_in_buffer(part.full, full_bytes({&part, 1}, world_size()), *buffer,
                      "reduce_scatter_into");
    }
  }
  const std::uint64_t call =
      begin_call(CommOp::ReduceScatter, label, full_bytes(parts, world_size()),
                 hash_call(label, parts, segment.get(), rank()));
  if (!segment) {
    return in_flight(
        std::make_shared<StagedReduceScatter>(context_, call, label, parts));
  }
  segment->last_op = CommOp::ReduceScatter;
  segment->last_call = call;
  return in_flight(std::make_shared<DirectReduceScatter>(context_, call, label,
                                                         parts, segment));
}

Work ShmCommunicator::all_reduce(std::span<const ReducePart> parts,
                                 CommBuffer* buffer, std::string_view label) {
  auto segment = segment_for(buffer, BufferKind::Exported, "all_reduce");
  for (const ReducePart& part : parts) {
    check_part(part, "all_reduce");
    check_alias(part, "all_reduce");
    if (buffer != nullptr) {
      check_in_buffer(part.full, full_bytes({&part, 1}, 1), *buffer,
                      "all_reduce");
    }
  }
  if (!DirectAllReduce::possible(parts)) {
    segment = nullptr;
  }
  const std::uint64_t call =
      begin_call(CommOp::AllReduce, label, full_bytes(parts, 1),
                 hash_call(label, parts, segment.get(), rank()));
  if (!segment) {
    return in_flight(
        std::make_shared<StagedAllReduce>(context_, call, label, parts));
  }
  segment->last_op = CommOp::AllReduce;
  segment->last_call = call;
  return in_flight(
      std::make_shared<DirectAllReduce>(context_, call, label, parts, segment));
}

void ShmCommunicator::broadcast(void* data, std::int64_t bytes, int root,
                                std::string_view label) {
  if (root < 0 || root >= world_size() || bytes < 0) {
    throw std::invalid_argument(
        fmt::format("[broadcast] '{}': {} bytes from rank {} of {}", label,
                    bytes, root, world_size()));
  }
  CallHash hash(label);
  hash.mix(static_cast<std::uint64_t>(root));
  const std::uint64_t call =
      begin_call(CommOp::Broadcast, label, bytes, hash.value());
  in_flight(
      std::make_shared<Broadcast>(context_, call, label,
                                  std::span(static_cast<std::byte*>(data),
                                            static_cast<std::size_t>(bytes)),
                                  root))
      .wait();
}

void ShmCommunicator::barrier(std::string_view label) {
  const std::uint64_t call =
      begin_call(CommOp::Barrier, label, 0, CallHash(label).value());
  in_flight(std::make_shared<Barrier>(context_, call, label)).wait();
}

std::unique_ptr<CommBuffer> ShmCommunicator::allocate(BufferKind kind,
                                                      std::int64_t bytes,
                                                      std::string_view label) {
  if (bytes < 0 || num_buffers_ == kMaxBuffers) {
    throw std::invalid_argument(fmt::format(
        "[allocate] '{}': cannot make buffer {} of at most {}, of {} bytes",
        label, num_buffers_ + 1, kMaxBuffers, bytes));
  }
  CallHash hash(label);
  hash.mix(static_cast<std::uint64_t>(kind));
  const std::uint64_t call =
      begin_call(CommOp::Allocate, label, bytes, hash.value());
  const SegmentRequest request = {call, page_aligned(bytes), label,
                                  kind == BufferKind::Exported};
  auto segment = std::make_shared<Segment>();
  segment->mappings = map_segments(context_, request);
  segment->id = num_buffers_++;
  segment->kind = kind;
  segment->label = label;
  segment->communicator = this;
  return std::make_unique<ShmBuffer>(std::move(segment), rank(), bytes);
}

}  // namespace
}  // namespace detail

std::unique_ptr<Communicator> connect_shm(const ShmOptions& options) {
  if (options.world_size < 1 || options.world_size > detail::kMaxWorldSize ||
      options.rank < 0 || options.rank >= options.world_size) {
    throw std::invalid_argument(
        fmt::format("[connect_shm] rank {} of {}: ranks count from 0, and one "
                    "host holds at most {}",
                    options.rank, options.world_size, detail::kMaxWorldSize));
  }
  if (options.world_size == 1) {
    return make_lone_communicator("shm", options.timeout);
  }
  return std::make_unique<detail::ShmCommunicator>(
      detail::link_processes(options), options);
}

std::vector<std::unique_ptr<Communicator>> make_local_shm_group(
    int world_size, std::chrono::milliseconds timeout,
    std::vector<int> members) {
  std::vector<std::unique_ptr<Communicator>> ranks;
  if (world_size == 1) {
    ranks.push_back(make_lone_communicator("shm", timeout));
    return ranks;
  }
  auto links = detail::link_threads(world_size);
  for (int rank = 0; rank < world_size; ++rank) {
    ranks.push_back(std::make_unique<detail::ShmCommunicator>(
        std::move(links[static_cast<std::size_t>(rank)]),
        ShmOptions{.rank = rank,
                   .world_size = world_size,
                   .timeout = timeout,
                   .members = members}));
  }
  return ranks;
}

}  // namespace accordion
