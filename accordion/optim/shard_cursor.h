// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "accordion/fsdp/sharded_module.h"
#include "accordion/offload/paged_arrays.h"

namespace accordion {

/// Goes through a flat shard from its first element to its last, wherever it
/// lives: in memory, or block by block through buffers. Of what is paged, the
/// last block that was looked at is held.
class ShardCursor {
 public:
  /// `shard` [numel] is in memory where `paged` is unset. `use`: what is done
  /// with what at() returns. `order` outlives the cursor.
  ShardCursor(at::Tensor shard, const std::optional<PagedShard>& paged, Use use,
              BlockOrder& order);

  /// How far the elements from `begin` on can be had as one tensor.
  [[nodiscard]] std::int64_t end_of_run(std::int64_t begin) const;
  /// Elements [begin, end) of one run, until the next call. Throws
  /// OffloadError.
  at::Tensor at(std::int64_t begin, std::int64_t end);
  /// Lets go of the last block. Throws OffloadError.
  void finish();

 private:
  [[nodiscard]] std::int64_t block_numel() const;

  at::Tensor shard_;  // [numel]
  std::optional<PagedShard> paged_;
  Use use_;
  BlockOrder& order_;
  std::optional<HeldBlock> held_;
  std::int64_t index_ = -1;  // of the block held, in the shard
};

}  // namespace accordion
