// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/optim/paged_moments.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include "accordion/offload/nvme_store.h"

namespace accordion {

MomentsOffload offload_to_nvme(std::filesystem::path folder) {
  return {.make_store = [folder = std::move(folder)](
                            const std::vector<std::int64_t>& block_bytes) {
    return make_nvme_store({.folder = folder, .block_bytes = block_bytes});
  }};
}

MomentsOffload offload_to_host(HostPool& pool) {
  return {.make_store = [&pool](const std::vector<std::int64_t>& block_bytes) {
    return make_host_store(block_bytes, pool);
  }};
}

class MomentPager::Held {
 public:
  Held(MomentPager& pager, int block)
      : pager_(pager), block_(block), memory_(pager.acquire(block)) {}
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() {
    if (!released_) {
      try {
        write();
      } catch (const OffloadError&) {
        // Another error is on its way.
      }
    }
  }
  void write() {
    released_ = true;
    pager_.blocks_->release(block_, Use::Changed);
  }
  [[nodiscard]] std::span<std::byte> memory() const { return memory_; }

 private:
  MomentPager& pager_;
  int block_;
  std::span<std::byte> memory_;
  bool released_ = false;
};

MomentPager::MomentPager(const MomentsOffload& offload,
                         std::vector<Shard> shards)
    : buffers_(offload.buffers) {
  TORCH_CHECK_VALUE(
      offload.block_bytes > 0 && offload.block_bytes % kOffloadAlignment == 0,
      "[AdamW] offload.block_bytes is ", offload.block_bytes,
      "; give a multiple of ", kOffloadAlignment);
  TORCH_CHECK_VALUE(offload.buffers >= 2, "[AdamW] offload.buffers is ",
                    offload.buffers,
                    "; both moments of a stretch need one, so give 2 or more");
  std::vector<std::int64_t> block_bytes;
  for (const Shard& shard : shards) {
    const auto item = static_cast<std::int64_t>(c10::elementSize(shard.dtype));
    Place place{.shard = shard,
                .block_numel = offload.block_bytes / item,
                .first = static_cast<int>(block_bytes.size())};
    place.num_blocks = static_cast<int>((shard.numel + place.block_numel - 1) /
                                        place.block_numel);
    for (int moment = 0; moment < 2; ++moment) {
      for (int i = 0; i < place.num_blocks; ++i) {
        block_bytes.push_back(
            item *
            std::min(place.block_numel, shard.numel - i * place.block_numel));
      }
    }
    places_.push_back(place);
  }
  next_.assign(block_bytes.size(), -1);
  blocks_ = std::make_unique<StagedBlocks>(offload.make_store(block_bytes),
                                           block_bytes, offload.buffers);
}

void MomentPager::visit(
    std::size_t shard,
    const std::function<void(const MomentStretch&)>& update) {
  const Place& place = places_[shard];
  for (int i = 0; i < place.num_blocks; ++i) {
    const std::int64_t begin = i * place.block_numel;
    const std::int64_t end =
        std::min(begin + place.block_numel, place.shard.numel);
    Held first(*this, place.first + i);
    Held second(*this, place.first + place.num_blocks + i);
    const auto on = [&](const Held& block) {
      return at::from_blob(block.memory().data(), {end - begin},
                           at::TensorOptions(place.shard.dtype));
    };
    update(
        {.begin = begin, .end = end, .first = on(first), .second = on(second)});
    first.write();
    second.write();
  }
}

/// Of a block, with what is to follow it on its way.
std::span<std::byte> MomentPager::acquire(int block) {
  if (last_ >= 0) {
    next_[static_cast<std::size_t>(last_)] = block;
  }
  last_ = block;
  const std::span<std::byte> memory = blocks_->acquire(block);
  int ahead = next_[static_cast<std::size_t>(block)];
  for (int i = 0; i < buffers_ && ahead >= 0 && ahead != block; ++i) {
    if (!blocks_->prefetch(ahead)) {
      break;
    }
    ahead = next_[static_cast<std::size_t>(ahead)];
  }
  return memory;
}

MomentStretch MomentPager::whole(std::size_t shard) {
  const Place& place = places_[shard];
  const std::int64_t numel = place.shard.numel;
  const auto options = at::TensorOptions(place.shard.dtype);
  const auto mapped = [&](int first) {
    if (numel == 0) {
      return at::empty({0}, options);
    }
    const std::shared_ptr<std::byte> memory =
        blocks_->map(first, first + place.num_blocks);
    return at::from_blob(
        memory.get(), {numel}, [memory](void*) {}, options);
  };
  return {.end = numel,
          .first = mapped(place.first),
          .second = mapped(place.first + place.num_blocks)};
}

namespace {

class PagedMoments final : public ShardMoments {
 public:
  PagedMoments(std::shared_ptr<MomentPager> pager, std::size_t shard)
      : pager_(std::move(pager)), shard_(shard) {}

  void visit(const std::function<void(const MomentStretch& stretch)>& update)
      override {
    pager_->visit(shard_, update);
  }
  MomentStretch whole() override { return pager_->whole(shard_); }

 private:
  std::shared_ptr<MomentPager> pager_;
  std::size_t shard_;
};

}  // namespace

std::unique_ptr<ShardMoments> make_paged_moments(
    std::shared_ptr<MomentPager> pager, std::size_t shard) {
  return std::make_unique<PagedMoments>(std::move(pager), shard);
}

}  // namespace accordion
