// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>

#include "accordion/comm/dtype.h"
#include "accordion/comm/element_kernels.h"

namespace accordion::detail {

/// The sum of squares of the elements of one part, met in order.
///
/// Each lane adds up its elements in fp64, from the first to the last; the
/// lanes are added last. So the result depends on the values alone: not on the
/// backend, nor on the pieces in which it meets them.
class SquareSum {
 public:
  /// Takes the next `numel` elements. Every piece but the last is a multiple of
  /// kSquareLanes.
  void add(const void* values, DType dtype, std::int64_t numel);
  [[nodiscard]] double total() const;

  /// For loops that add the squares of element i to number i % kSquareLanes.
  [[nodiscard]] double* lanes() { return lanes_.data(); }

 private:
  alignas(64) std::array<double, kSquareLanes> lanes_{};
};

}  // namespace accordion::detail
