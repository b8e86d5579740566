// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/square_sum.h"

#include <algorithm>

#include "accordion/comm/elements.h"

namespace accordion::detail {

void SquareSum::add(const void* values, DType dtype, std::int64_t numel) {
  if (dtype == DType::Float32) {
    return add_squares_fp32(lanes_.data(), static_cast<const float*>(values),
                            numel);
  }
  if (dtype == DType::Float64) {
    return add_squares_fp64(lanes_.data(), static_cast<const double*>(values),
                            numel);
  }
  alignas(64) std::array<float, 16 * kSquareLanes> block;
  constexpr auto kBlock = static_cast<std::int64_t>(block.size());
  for (std::int64_t first = 0; first < numel; first += kBlock) {
    const std::int64_t count = std::min(kBlock, numel - first);
    convert(block.data(), DType::Float32, offset(values, dtype, first), dtype,
            count);
    add_squares_fp32(lanes_.data(), block.data(), count);
  }
}

double SquareSum::total() const {
  double sum = 0;
  for (const double lane : lanes_) {
    sum += lane;
  }
  return sum;
}

}  // namespace accordion::detail
