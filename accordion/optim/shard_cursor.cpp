// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/optim/shard_cursor.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/from_blob.h>

namespace accordion {

ShardCursor::ShardCursor(at::Tensor shard,
                         const std::optional<PagedShard>& paged, Use use,
                         BlockOrder& order)
    : shard_(std::move(shard)), paged_(paged), use_(use), order_(order) {}

std::int64_t ShardCursor::block_numel() const {
  return paged_->pages->block_bytes() /
         static_cast<std::int64_t>(shard_.element_size());
}

std::int64_t ShardCursor::end_of_run(std::int64_t begin) const {
  if (!paged_) {
    return shard_.numel();
  }
  return std::min((begin / block_numel() + 1) * block_numel(), shard_.numel());
}

at::Tensor ShardCursor::at(std::int64_t begin, std::int64_t end) {
  if (!paged_) {
    return shard_.narrow(0, begin, end - begin);
  }
  const std::int64_t index = begin / block_numel();
  if (index != index_) {
    finish();
    StagedBlocks& blocks = paged_->pages->blocks();
    const int block =
        paged_->pages->first_block(paged_->array) + static_cast<int>(index);
    held_.emplace(blocks, block, order_.acquire(blocks, block));
    index_ = index;
  }
  std::byte* const from = held_->memory().data() +
                          (begin - index * block_numel()) *
                              static_cast<std::int64_t>(shard_.element_size());
  return at::from_blob(from, {end - begin},
                       at::TensorOptions(shard_.scalar_type()));
}

void ShardCursor::finish() {
  if (held_) {
    held_->release(use_);
    held_.reset();
    index_ = -1;
  }
}

}  // namespace accordion
