// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>
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

/// The p-norm from each rank's sum of powers, or largest element for p =
/// infinity; in the order of ranks, so that every rank gets the same.
///
/// Comm  one all-gather of one double, named `label`
double global_norm(double mine, double p, Communicator& communicator,
                   std::string_view label);

}  // namespace accordion::detail
