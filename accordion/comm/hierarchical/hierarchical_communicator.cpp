// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/hierarchical/hierarchical_communicator.h"

#include <fmt/format.h>

#include <stdexcept>

#include "accordion/comm/elements.h"
#include "accordion/comm/hierarchical/host_lane.h"
#include "accordion/comm/hierarchical/phases.h"
#include "accordion/comm/rank_names.h"

namespace accordion {
namespace detail {
namespace {

// A buffer of one of the lanes' local communicators.
class LaneBuffer final : public CommBuffer {
 public:
  LaneBuffer(std::shared_ptr<CommBuffer> inner, HostLane& lane)
      : CommBuffer(inner->data(), inner->bytes()),
        inner_(std::move(inner)),
        lane_(lane) {}
  [[nodiscard]] const std::shared_ptr<CommBuffer>& inner() const {
    return inner_;
  }
  [[nodiscard]] HostLane& lane() const { return lane_; }

 private:
  std::shared_ptr<CommBuffer> inner_;
  HostLane& lane_;
};

class LaneWork final : public Work::State {
 public:
  LaneWork(std::future<Outcome> done, std::string what)
      : done_(std::move(done)), what_(std::move(what)) {}
  void wait() override { done_.get().rethrow(); }
  std::string describe() const override { return what_; }

 private:
  std::future<Outcome> done_;
  std::string what_;
};

class HierarchicalCommunicator final : public Communicator {
 public:
  HierarchicalCommunicator(HostLink gathers, HostLink others,
                           std::vector<int> members)
      : rank_(gathers.between->rank() * gathers.local->world_size() +
              gathers.local->rank()),
        world_size_(gathers.between->world_size() *
                    gathers.local->world_size()),
        timeout_(gathers.between->timeout()),
        who_(RankNames(std::move(members)).one_of(rank_, world_size_)),
        gathers_(std::move(gathers)),
        others_(std::move(others)) {}

  int rank() const override { return rank_; }
  int world_size() const override { return world_size_; }
  std::string_view backend() const override { return "hierarchical"; }
  const CommCounters& counters() const override { return counters_; }
  std::chrono::milliseconds timeout() const override { return timeout_; }

  std::unique_ptr<CommBuffer> allocate_common(std::int64_t bytes,
                                              std::string_view label) override {
    std::unique_ptr<CommBuffer> inner;
    begin(gathers_, CommOp::Allocate, bytes, label, [&](HostContext& host) {
      inner = host.local->allocate_common(bytes, label);
    }).wait();
    return std::make_unique<LaneBuffer>(std::move(inner), gathers_);
  }
  std::unique_ptr<CommBuffer> allocate_exported(
      std::int64_t bytes, std::string_view label) override {
    std::unique_ptr<CommBuffer> inner;
    begin(others_, CommOp::Allocate, bytes, label, [&](HostContext& host) {
      inner = host.local->allocate_exported(bytes, label);
    }).wait();
    return std::make_unique<LaneBuffer>(std::move(inner), others_);
  }

  void acquire(CommBuffer& buffer) override {
    LaneBuffer& ours = lane_buffer(buffer, "acquire");
    ours.lane()
        .submit("acquire of a buffer on " + who_,
                [&](HostContext& host) { host.local->acquire(*ours.inner()); })
        .get()
        .rethrow();
  }
  // Not waited for: gathers issued before it may still be under way.
  void release(CommBuffer& buffer) override {
    LaneBuffer& ours = lane_buffer(buffer, "release");
    ours.lane().post("release of a buffer on " + who_,
                     [inner = ours.inner()](HostContext& host) {
                       host.local->release(*inner);
                     });
  }

  Work all_gather_into(std::span<const GatherPart> parts, CommBuffer* buffer,
                       std::string_view label) override;
  Work reduce_scatter_into(std::span<const ReducePart> parts,
                           CommBuffer* buffer, std::string_view label) override;
  Work all_reduce(std::span<const ReducePart> parts, CommBuffer* buffer,
                  std::string_view label) override;
  void broadcast(void* data, std::int64_t bytes, int root,
                 std::string_view label) override;
  void barrier(std::string_view label) override;
  void abandon(std::string_view reason) override {
    gathers_.abandon(std::string(reason));
    others_.abandon(std::string(reason));
  }

 private:
  // Counts a call and queues its phases.
  Work begin(HostLane& lane, CommOp op, std::int64_t bytes,
             std::string_view label, HostPhases phases) {
    const auto index = static_cast<std::size_t>(op);
    counters_.calls[index] += 1;
    counters_.bytes[index] += bytes;
    const std::string what =
        fmt::format("{} '{}' (call {} of its kind) on {}", name(op), label,
                    counters_.calls[index], who_);
    return Work(
        std::make_unique<LaneWork>(lane.submit(what, std::move(phases)), what));
  }

  LaneBuffer& lane_buffer(CommBuffer& buffer, std::string_view where) const {
    auto* ours = dynamic_cast<LaneBuffer*>(&buffer);
    if (ours == nullptr ||
        (&ours->lane() != &gathers_ && &ours->lane() != &others_)) {
      throw std::invalid_argument(fmt::format(
          "[{}] the buffer belongs to another communicator", where));
    }
    return *ours;
  }

  // The local communicator's buffer, for an operation on `lane`.
  CommBuffer* inner_of(CommBuffer* buffer, const HostLane& lane,
                       std::string_view where) const {
    if (buffer == nullptr) {
      return nullptr;
    }
    LaneBuffer& ours = lane_buffer(*buffer, where);
    if (&ours.lane() != &lane) {
      throw std::invalid_argument(fmt::format(
          "[{}] the buffer is of the wrong kind: an all-gather needs one of "
          "allocate_common, a reduction one of allocate_exported",
          where));
    }
    return ours.inner().get();
  }

  const int rank_;
  const int world_size_;
  const std::chrono::milliseconds timeout_;
  const std::string who_;
  CommCounters counters_;
  HostLane gathers_;
  HostLane others_;
};

Work HierarchicalCommunicator::all_gather_into(
    std::span<const GatherPart> parts, CommBuffer* buffer,
    std::string_view label) {
  for (const GatherPart& part : parts) {
    check_part(part, "all_gather_into");
  }
  return begin(gathers_, CommOp::AllGather, full_bytes(parts, world_size_),
               label,
               GatherPhases{{parts.begin(), parts.end()},
                            inner_of(buffer, gathers_, "all_gather_into"),
                            std::string(label)});
}

Work HierarchicalCommunicator::reduce_scatter_into(
    std::span<const ReducePart> parts, CommBuffer* buffer,
    std::string_view label) {
  for (const ReducePart& part : parts) {
    check_part(part, "reduce_scatter_into");
  }
  return begin(
      others_, CommOp::ReduceScatter, full_bytes(parts, world_size_), label,
      ReduceScatterPhases{{parts.begin(), parts.end()},
                          inner_of(buffer, others_, "reduce_scatter_into"),
                          std::string(label)});
}

Work HierarchicalCommunicator::all_reduce(std::span<const ReducePart> parts,
                                          CommBuffer* buffer,
                                          std::string_view label) {
  for (const ReducePart& part : parts) {
    check_part(part, "all_reduce");
  }
  return begin(others_, CommOp::AllReduce, full_bytes(parts, 1), label,
               AllReducePhases{{parts.begin(), parts.end()},
                               inner_of(buffer, others_, "all_reduce"),
                               std::string(label)});
}

// From the root to the ranks of its place on every host, and on to their hosts.
void HierarchicalCommunicator::broadcast(void* data, std::int64_t bytes,
                                         int root, std::string_view label) {
  if (root < 0 || root >= world_size_ || bytes < 0) {
    throw std::invalid_argument(
        fmt::format("[broadcast] '{}': {} bytes from rank {} of {}", label,
                    bytes, root, world_size_));
  }
  begin(others_, CommOp::Broadcast, bytes, label, [&](HostContext& host) {
    const int per_host = host.local->world_size();
    if (host.local->rank() == root % per_host) {
      host.between->broadcast(data, bytes, root / per_host, label);
    }
    host.local->broadcast(data, bytes, root % per_host, label);
  }).wait();
}

// Whoever leaves the second barrier knows that each host has left the first.
void HierarchicalCommunicator::barrier(std::string_view label) {
  begin(others_, CommOp::Barrier, 0, label, [&](HostContext& host) {
    host.local->barrier(label);
    host.between->barrier(label);
  }).wait();
}

}  // namespace
}  // namespace detail

std::unique_ptr<Communicator> make_hierarchical_communicator(
    HostLink gathers, HostLink others, std::vector<int> members) {
  return std::make_unique<detail::HierarchicalCommunicator>(
      std::move(gathers), std::move(others), std::move(members));
}

}  // namespace accordion
