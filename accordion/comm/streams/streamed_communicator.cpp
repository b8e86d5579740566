// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/streams/streamed_communicator.h"

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "accordion/comm/elements.h"
#include "accordion/comm/fake/fake_communicator.h"
#include "accordion/comm/gather_texts.h"
#include "accordion/comm/rank_names.h"
#include "accordion/comm/streams/call_watch.h"
#include "accordion/comm/streams/stream_work.h"

namespace accordion::detail {
namespace {

std::string describe_call(CommOp op, std::string_view label, std::int64_t bytes,
                          std::size_t num_parts) {
  return fmt::format("{} of '{}' ({} bytes in {} part{})", name(op), label,
                     bytes, num_parts, num_parts == 1 ? "" : "s");
}

/// Lets an error of the transport say of which call it is.
template <class Body>
void naming(const std::string& text, const Body& body) {
  try {
    body();
  } catch (const CommError& error) {
    throw CommError(fmt::format("{}\nIt was {}.", error.what(), text));
  }
}

class StreamedCommunicator final : public Communicator {
 public:
  StreamedCommunicator(std::shared_ptr<StreamDevice> device,
                       std::unique_ptr<Transport> transport,
                       std::shared_ptr<Communicator> host,
                       const StreamedOptions& options)
      : options_(options),
        device_(std::move(device)),
        transport_(std::move(transport)),
        host_(std::move(host)),
        watch_(*device_, *transport_,
               RankNames(options.members).one_of(rank(), world_size()),
               options.timeout) {
    if (options.watch_interval.count() > 0 && world_size() > 1) {
      watch_.start(options.watch_interval);
    }
  }

  int rank() const override { return host_->rank(); }
  int world_size() const override { return host_->world_size(); }
  std::string_view backend() const override { return options_.backend; }
  const CommCounters& counters() const override { return counters_; }
  std::chrono::milliseconds timeout() const override {
    return options_.timeout;
  }
  std::optional<int> cuda_device() const override {
    return device_->cuda_device();
  }
  bool runs_behind_host() const override { return true; }
  void block_host() override {
    device_->block_until(*device_->record(StreamId::Caller));
    watch_.check();
  }
  bool sums_in_full_dtype() const override { return world_size() > 1; }

  std::unique_ptr<CommBuffer> allocate_common(std::int64_t bytes,
                                              std::string_view label) override {
    count(CommOp::Allocate, bytes);
    return allocate_private(bytes, label);
  }
  std::unique_ptr<CommBuffer> allocate_exported(
      std::int64_t bytes, std::string_view label) override {
    return allocate_common(bytes, label);
  }
  std::unique_ptr<CommBuffer> allocate_private(
      std::int64_t bytes, std::string_view label) const override {
    return std::make_unique<StreamBuffer>(device_, bytes, label);
  }
  std::unique_ptr<Communicator> make_lone() const override {
    return make_streamed_communicator(
        device_, std::make_unique<LoneTransport>(),
        make_lone_communicator("none", timeout()),
        {.backend = "none", .timeout = timeout()});
  }

  void acquire(CommBuffer& buffer) override;
  void release(CommBuffer& buffer) override;
  void follow_caller() override {
    device_->wait(StreamId::Gather, *device_->record(StreamId::Caller));
  }

  Work all_gather_into(std::span<const GatherPart> parts, CommBuffer* buffer,
                       std::string_view label) override;
  Work reduce_scatter_into(std::span<const ReducePart> parts,
                           CommBuffer* buffer, std::string_view label) override;
  Work all_reduce(std::span<const ReducePart> parts, CommBuffer* buffer,
                  std::string_view label) override;
  void broadcast(void* data, std::int64_t bytes, int root,
                 std::string_view label) override;
  void barrier(std::string_view label) override {
    count(CommOp::Barrier, 0);
    host_->barrier(label);
  }
  void abandon(std::string_view reason) override {
    transport_->abort();
    host_->abandon(reason);
  }

 private:
  /// Whether the call is the host's: no part lies in the device's memory.
  template <class Part>
  [[nodiscard]] bool on_host(std::span<const Part> parts,
                             const CommBuffer* buffer) const {
    return buffer == nullptr && !parts.empty() &&
           !device_->holds(parts.front().full);
  }
  void count(CommOp op, std::int64_t bytes) {
    counters_.calls[static_cast<std::size_t>(op)] += 1;
    counters_.bytes[static_cast<std::size_t>(op)] += bytes;
  }
  [[nodiscard]] std::string begin(CommOp op, std::string_view label,
                                  std::int64_t bytes, std::size_t num_parts);
  [[nodiscard]] Work end(StreamId stream, std::string text,
                         StreamBuffer* buffer, bool gathers);
  void store(std::span<const ReducePart> parts, bool scattered);
  [[nodiscard]] static StreamBuffer* own(CommBuffer* buffer) {
    return static_cast<StreamBuffer*>(buffer);
  }

  const StreamedOptions options_;
  const std::shared_ptr<StreamDevice> device_;
  const std::unique_ptr<Transport> transport_;
  const std::shared_ptr<Communicator> host_;
  CommCounters counters_;
  CallWatch watch_;
};

void StreamedCommunicator::acquire(CommBuffer& buffer) {
  const StreamBuffer& mine = *own(&buffer);
  if (mine.use() != StreamBuffer::Use::None) {
    throw std::logic_error(
        "[comm] acquire: this rank still uses the buffer: wait for the "
        "collective, and release what was gathered");
  }
  if (mine.last()) {
    device_->wait(StreamId::Caller, *mine.last());
  }
}

void StreamedCommunicator::release(CommBuffer& buffer) {
  own(&buffer)->release();
}

/// Returns what the call is named in errors.
std::string StreamedCommunicator::begin(CommOp op, std::string_view label,
                                        std::int64_t bytes,
                                        std::size_t num_parts) {
  watch_.check();
  count(op, bytes);
  std::string text = describe_call(op, label, bytes, num_parts);
  if (!options_.debug_calls || world_size() == 1) {
    return text;
  }
  const std::vector<std::string> calls =
      gather_texts(*host_, text, "comparison of calls");
  for (std::size_t peer = 0; peer < calls.size(); ++peer) {
    if (calls[peer] != text) {
      const RankNames names(options_.members);
      throw CommError(fmt::format(
          "[nccl] {} calls {}, but rank {} calls {}. Every rank has to call "
          "the same units in the same order.",
          names.one_of(rank(), world_size()), text,
          names[static_cast<int>(peer)], calls[peer]));
    }
  }
  return text;
}

Work StreamedCommunicator::end(StreamId stream, std::string text,
                               StreamBuffer* buffer, bool gathers) {
  EventPtr done = device_->record(stream);
  if (buffer != nullptr) {
    buffer->begin(done);
  }
  if (world_size() > 1) {
    watch_.add(done, [text] { return text; });
  }
  return Work(std::make_unique<StreamWork>(
      *device_, watch_,
      StreamWork::Call{std::move(done), buffer, gathers, std::move(text)}));
}

Work StreamedCommunicator::all_gather_into(std::span<const GatherPart> parts,
                                           CommBuffer* buffer,
                                           std::string_view label) {
  for (const GatherPart& part : parts) {
    check_part(part, "all_gather_into");
  }
  const std::int64_t bytes = full_bytes(parts, world_size());
  if (on_host(parts, buffer)) {
    count(CommOp::AllGather, bytes);
    return host_->all_gather_into(parts, nullptr, label);
  }
  StreamBuffer* const into = own(buffer);
  if (into != nullptr && into->use() != StreamBuffer::Use::None) {
    throw std::logic_error(
        "[comm] all_gather_into: the buffer was gathered into before and not "
        "released");
  }
  std::string text = begin(CommOp::AllGather, label, bytes, parts.size());
  if (into == nullptr) {
    follow_caller();
  } else {
    device_->wait(StreamId::Gather, into->free());
  }
  std::vector<InPlace> moved;
  for (const GatherPart& part : parts) {
    device_->convert(StreamId::Gather,
                     offset(part.full, part.full_dtype, rank() * part.numel),
                     part.full_dtype, part.local, part.local_dtype, part.numel);
    moved.push_back({part.full, part.full_dtype, part.numel});
  }
  naming(text, [&] { transport_->all_gather(StreamId::Gather, moved); });
  return end(StreamId::Gather, std::move(text), into, true);
}

std::vector<InPlace> in_place(std::span<const ReducePart> parts) {
  std::vector<InPlace> result;
  for (const ReducePart& part : parts) {
    // What is summed is spoilt: see ReducePart::full.
    result.push_back(
        {const_cast<void*>(part.full), part.full_dtype, part.numel});
  }
  return result;
}

/// What the transport has summed, in `full`.
void StreamedCommunicator::store(std::span<const ReducePart> parts,
                                 bool scattered) {
  for (const ReducePart& part : parts) {
    device_->store_sums(
        StreamId::Reduce,
        offset(part.full, part.full_dtype, scattered ? rank() * part.numel : 0),
        part);
  }
}

Work StreamedCommunicator::reduce_scatter_into(
    std::span<const ReducePart> parts, CommBuffer* buffer,
    std::string_view label) {
  for (const ReducePart& part : parts) {
    check_part(part, "reduce_scatter_into");
  }
  const std::int64_t bytes = full_bytes(parts, world_size());
  if (on_host(parts, buffer)) {
    count(CommOp::ReduceScatter, bytes);
    return host_->reduce_scatter_into(parts, nullptr, label);
  }
  std::string text = begin(CommOp::ReduceScatter, label, bytes, parts.size());
  device_->wait(StreamId::Reduce, *device_->record(StreamId::Caller));
  naming(text, [&] {
    transport_->reduce_scatter(StreamId::Reduce, in_place(parts));
  });
  store(parts, /*scattered=*/true);
  return end(StreamId::Reduce, std::move(text), own(buffer), false);
}

Work StreamedCommunicator::all_reduce(std::span<const ReducePart> parts,
                                      CommBuffer* buffer,
                                      std::string_view label) {
  for (const ReducePart& part : parts) {
    check_part(part, "all_reduce");
  }
  const std::int64_t bytes = full_bytes(parts, 1);
  if (on_host(parts, buffer)) {
    count(CommOp::AllReduce, bytes);
    return host_->all_reduce(parts, nullptr, label);
  }
  std::string text = begin(CommOp::AllReduce, label, bytes, parts.size());
  device_->wait(StreamId::Reduce, *device_->record(StreamId::Caller));
  naming(text,
         [&] { transport_->all_reduce(StreamId::Reduce, in_place(parts)); });
  store(parts, /*scattered=*/false);
  return end(StreamId::Reduce, std::move(text), own(buffer), false);
}

void StreamedCommunicator::broadcast(void* data, std::int64_t bytes, int root,
                                     std::string_view label) {
  if (!device_->holds(data)) {
    count(CommOp::Broadcast, bytes);
    host_->broadcast(data, bytes, root, label);
    return;
  }
  std::string text = begin(CommOp::Broadcast, label, bytes, 1);
  follow_caller();
  naming(text,
         [&] { transport_->broadcast(StreamId::Gather, data, bytes, root); });
  end(StreamId::Gather, std::move(text), nullptr, false).wait();
}

}  // namespace

std::unique_ptr<Communicator> make_streamed_communicator(
    std::shared_ptr<StreamDevice> device, std::unique_ptr<Transport> transport,
    std::shared_ptr<Communicator> host, const StreamedOptions& options) {
  return std::make_unique<StreamedCommunicator>(
      std::move(device), std::move(transport), std::move(host), options);
}

}  // namespace accordion::detail
