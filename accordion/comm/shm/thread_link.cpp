// SPDX-License-Identifier: BSD-3-Clause
#include <mutex>

#include "accordion/comm/shm/rank_link.h"

namespace accordion::detail {
namespace {

struct SharedByThreads {
  explicit SharedByThreads(int world_size)
      : control(Mapping::anonymous(
            page_aligned(control_memory_bytes(world_size)), "control block")),
        offered(static_cast<std::size_t>(world_size)) {}

  Mapping control;
  std::mutex mutex;
  std::vector<std::shared_ptr<Mapping>> offered;  // by rank; under `mutex`
};

// Every rank sees the same mapping, at one address: a thread sanitizer can then
// follow the protocol.
class ThreadLink : public RankLink {
 public:
  ThreadLink(std::shared_ptr<SharedByThreads> shared, int rank)
      : shared_(std::move(shared)), rank_(static_cast<std::size_t>(rank)) {}

  // A thread cannot die alone; one that ends closes its communicator.
  bool alive(int) override { return true; }

  Mapping& control_memory() override { return shared_->control; }

  void offer(const SegmentRequest& request) override {
    if (rank_ != 0 && !request.one_per_rank) {
      return;
    }
    auto mapping = std::make_shared<Mapping>(
        Mapping::anonymous(request.bytes, request.label));
    const std::lock_guard lock(shared_->mutex);
    shared_->offered[rank_] = std::move(mapping);
  }

  void relay(const SegmentRequest&) override {}

  std::vector<std::shared_ptr<Mapping>> collect(
      const SegmentRequest& request) override {
    const std::lock_guard lock(shared_->mutex);
    if (request.one_per_rank) {
      return shared_->offered;
    }
    return {shared_->offered[0]};
  }

  void settle() override {
    const std::lock_guard lock(shared_->mutex);
    shared_->offered[rank_].reset();
  }

 private:
  std::shared_ptr<SharedByThreads> shared_;
  std::size_t rank_;
};

}  // namespace

std::vector<std::unique_ptr<RankLink>> link_threads(int world_size) {
  const auto shared = std::make_shared<SharedByThreads>(world_size);
  std::vector<std::unique_ptr<RankLink>> links;
  for (int rank = 0; rank < world_size; ++rank) {
    links.push_back(std::make_unique<ThreadLink>(shared, rank));
  }
  return links;
}

}  // namespace accordion::detail
