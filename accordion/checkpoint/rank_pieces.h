// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "accordion/checkpoint/inspect.h"

// How a tensor lies over ranks, in words and bars.
namespace accordion::detail {

/// Characters in a line of rank_bars.
inline constexpr std::size_t kBarLineWidth = 72;

/// Ranks that wrote files, in order.
std::vector<int> ranks_of(const InspectReport& report);

/// Elements of a row of dim 0, where every piece begins and ends at rows; 0
/// where they do not, or rows are elements.
std::int64_t row_numel(const TensorReport& tensor);

/// "[2, 4)".
std::string range_text(std::int64_t begin, std::int64_t end);

/// What each rank has: "rows 3 x 4, 2, 0", "elements 5, 1", "all on rank 0".
/// Empty where the ranks of pieces are not known.
std::string each_rank_text(const TensorReport& tensor,
                           const std::vector<int>& ranks);

/// A line for each piece, and for each rank that has none: where it lies in the
/// tensor as a bar, as elements, and how much that is. Empty where the ranks of
/// pieces are not known.
std::string rank_bars(const TensorReport& tensor,
                      const std::vector<int>& ranks);

}  // namespace accordion::detail
