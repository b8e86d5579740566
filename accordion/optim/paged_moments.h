// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "accordion/offload/staged_blocks.h"
#include "accordion/optim/moments_offload.h"
#include "accordion/optim/shard_moments.h"

namespace accordion {

/// The moments of several shards, in one store and through one set of buffers.
///
/// // [Note: order of blocks]
/// Steps visit shards in an order that is the same from one step to the next:
/// in backward, that in which the backwards of their units end. Each block
/// remembers which one was visited after it; what follows the block in use is
/// read ahead as far as buffers allow, past the end of a shard and of a step.
///
/// A shard's first moments lie in the store one after the other, and so do its
/// second ones: a tensor on a mapping of the store holds all of either.
class MomentPager {
 public:
  struct Shard {
    std::int64_t numel = 0;
    c10::ScalarType dtype = c10::ScalarType::Float;
  };

  /// Throws  c10::ValueError for sizes out of range; OffloadError
  MomentPager(const MomentsOffload& offload, std::vector<Shard> shards);

  /// See ShardMoments.
  void visit(std::size_t shard,
             const std::function<void(const MomentStretch&)>& update);
  MomentStretch whole(std::size_t shard);

  [[nodiscard]] StagedBlocks& blocks() { return *blocks_; }

 private:
  /// Where a shard's moments are.
  struct Place {
    Shard shard;
    std::int64_t block_numel = 0;
    int first = 0;       // block of the first moments
    int num_blocks = 0;  // of either moment
  };
  /// A block in its buffer, released at the end of the scope.
  class Held;

  std::span<std::byte> acquire(int block);

  std::vector<Place> places_;
  std::unique_ptr<StagedBlocks> blocks_;
  std::vector<int> next_;  // by block, what was visited after it; -1: unknown
  int last_ = -1;          // visited
  int buffers_;
};

/// One shard of a pager, which it keeps alive.
std::unique_ptr<ShardMoments> make_paged_moments(
    std::shared_ptr<MomentPager> pager, std::size_t shard);

}  // namespace accordion
