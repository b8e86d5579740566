// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <c10/core/ScalarType.h>

#include "accordion/plan/training.h"

namespace accordion {

[[nodiscard]] c10::ScalarType scalar_type(plan::ComputeType type);

/// Times the operators of a step on this rank's threads, forward and backward
/// together: medians of what fits into some seconds, of at least three calls,
/// over several sets of operands that together outgrow the caches, as no layer
/// of a run finds the operands of the next there.
class OperatorTimer {
 public:
  explicit OperatorTimer(double seconds_each) : seconds_each_(seconds_each) {}

  /// `rows` tokens through a weight [columns, inner], both gradients wanted.
  [[nodiscard]] double linear(std::int64_t rows, std::int64_t inner,
                              std::int64_t columns,
                              c10::ScalarType dtype) const;
  /// Causal, one sequence of `heads` heads.
  [[nodiscard]] double attention(std::int64_t seq_len, std::int64_t heads,
                                 std::int64_t head_dim,
                                 c10::ScalarType dtype) const;

 private:
  double seconds_each_;
};

}  // namespace accordion
