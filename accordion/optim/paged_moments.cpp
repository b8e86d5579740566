// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/optim/paged_moments.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/ScalarType.h>

namespace accordion {

namespace {

std::int64_t item_bytes(const MomentPager::Shard& shard) {
  return static_cast<std::int64_t>(c10::elementSize(shard.dtype));
}

std::vector<std::int64_t> array_bytes(
    const std::vector<MomentPager::Shard>& shards) {
  std::vector<std::int64_t> bytes;
  for (const MomentPager::Shard& shard : shards) {
    bytes.insert(bytes.end(), 2, shard.numel * item_bytes(shard));
  }
  return bytes;
}

}  // namespace

MomentPager::MomentPager(const OffloadTarget& target, std::vector<Shard> shards)
    : shards_(std::move(shards)),
      arrays_(target, "AdamW", array_bytes(shards_)) {}

HeldBlock MomentPager::hold(int block) {
  return {blocks(), block, order_.acquire(blocks(), block)};
}

void MomentPager::visit(
    std::size_t shard,
    const std::function<void(const MomentStretch&)>& update) {
  const Shard& of = shards_[shard];
  const int array = static_cast<int>(2 * shard);
  const std::int64_t block_numel = arrays_.block_bytes() / item_bytes(of);
  for (int i = 0; i < arrays_.num_blocks(array); ++i) {
    const std::int64_t begin = i * block_numel;
    const std::int64_t end = std::min(begin + block_numel, of.numel);
    HeldBlock first = hold(arrays_.first_block(array) + i);
    HeldBlock second = hold(arrays_.first_block(array + 1) + i);
    const auto on = [&](const HeldBlock& block) {
      return at::from_blob(block.memory().data(), {end - begin},
                           at::TensorOptions(of.dtype));
    };
    update(
        {.begin = begin, .end = end, .first = on(first), .second = on(second)});
    first.release(Use::Changed);
    second.release(Use::Changed);
  }
}

/// The tensor keeps the mapping: it may be used after the pager.
at::Tensor MomentPager::map(std::size_t shard, int array) {
  const auto options = at::TensorOptions(shards_[shard].dtype);
  const int first = arrays_.first_block(array);
  const int count = arrays_.num_blocks(array);
  if (count == 0) {
    return at::empty({0}, options);
  }
  const std::shared_ptr<std::byte> memory = blocks().map(first, first + count);
  return at::from_blob(
      memory.get(), {shards_[shard].numel}, [memory](void*) {}, options);
}

MomentStretch MomentPager::whole(std::size_t shard) {
  const int array = static_cast<int>(2 * shard);
  return {.end = shards_[shard].numel,
          .first = map(shard, array),
          .second = map(shard, array + 1)};
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
