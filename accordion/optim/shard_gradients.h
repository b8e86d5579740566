// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "accordion/fsdp/sharded_module.h"

namespace accordion::detail {

/// The whole shard's gradient where every piece has one, a longer pass over
/// memory whose padding is zero; else those of the pieces that do.
inline std::vector<at::Tensor> gradients_of(const FlatShard& shard) {
  std::vector<at::Tensor> defined;
  for (const LocalParameter& piece : shard.pieces) {
    if (piece.gradient.defined()) {
      defined.push_back(piece.gradient);
    }
  }
  const bool all = !defined.empty() && defined.size() == shard.pieces.size();
  return all ? std::vector{shard.gradients} : defined;
}

}  // namespace accordion::detail
