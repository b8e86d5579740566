// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "accordion/offload/paged_arrays.h"
#include "accordion/optim/shard_moments.h"

namespace accordion {

/// The moments of several shards, in one store and through one set of buffers,
/// in the order of steps ([Note: order of blocks]): in backward, that in which
/// the backwards of their units end.
class MomentPager {
 public:
  struct Shard {
    std::int64_t numel = 0;
    c10::ScalarType dtype = c10::ScalarType::Float;
  };

  /// Throws  std::invalid_argument for sizes out of range; OffloadError
  MomentPager(const OffloadTarget& target, std::vector<Shard> shards);

  /// See ShardMoments.
  void visit(std::size_t shard,
             const std::function<void(const MomentStretch&)>& update);
  MomentStretch whole(std::size_t shard);

  [[nodiscard]] StagedBlocks& blocks() { return arrays_.blocks(); }

 private:
  HeldBlock hold(int block);
  at::Tensor map(std::size_t shard, int array);

  std::vector<Shard> shards_;
  PagedArrays arrays_;  // of shard i: 2 i the first moments, 2 i + 1 the second
  BlockOrder order_;
};

/// One shard of a pager, which it keeps alive.
std::unique_ptr<ShardMoments> make_paged_moments(
    std::shared_ptr<MomentPager> pager, std::size_t shard);

}  // namespace accordion
