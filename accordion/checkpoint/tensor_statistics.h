// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>

#include "accordion/checkpoint/tensor_source.h"

namespace accordion {

/// Figures of a tensor's elements. Those that are NaN or infinite are counted,
/// and the rest is over the others: all 0 where there are none.
struct TensorStatistics {
  std::int64_t finite = 0;
  std::int64_t nan = 0;
  std::int64_t infinite = 0;
  double min = 0.0;
  double max = 0.0;
  double mean = 0.0;
  double rms = 0.0;  ///< root of the mean of squares
};

/// Reads a tensor once, in chunks. Nothing for a dtype whose elements cannot be
/// had as numbers.
///
/// Memory  TensorCursor
/// Throws  as TensorSource::read
std::optional<TensorStatistics> statistics(TensorSource& source,
                                           const TensorInfo& tensor);

}  // namespace accordion
