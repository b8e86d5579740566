// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/tensor_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "accordion/checkpoint/tensor_cursor.h"

namespace accordion {
namespace {

/// Sums are of chunks first, which keeps their rounding small.
struct Sums {
  double values = 0.0;
  double squares = 0.0;
};

Sums add_chunk(std::span<const double> chunk, TensorStatistics& found) {
  Sums sums;
  for (const double value : chunk) {
    if (std::isnan(value)) {
      ++found.nan;
    } else if (std::isinf(value)) {
      ++found.infinite;
    } else {
      ++found.finite;
      found.min = std::min(found.min, value);
      found.max = std::max(found.max, value);
      sums.values += value;
      sums.squares += value * value;
    }
  }
  return sums;
}

}  // namespace

std::optional<TensorStatistics> statistics(TensorSource& source,
                                           const TensorInfo& tensor) {
  TensorCursor cursor(source, tensor);
  if (!cursor.has_values()) {
    return std::nullopt;
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  TensorStatistics found{.min = kInfinity, .max = -kInfinity};
  Sums sums;
  while (cursor.next()) {
    const Sums chunk = add_chunk(cursor.values(), found);
    sums.values += chunk.values;
    sums.squares += chunk.squares;
  }
  if (found.finite == 0) {
    found.min = found.max = 0.0;
    return found;
  }
  const auto count = static_cast<double>(found.finite);
  found.mean = sums.values / count;
  found.rms = std::sqrt(sums.squares / count);
  return found;
}

}  // namespace accordion
