// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "accordion/comm/communicator.h"

namespace accordion {

/// The element-wise sums of `values` over all ranks, the same bits everywhere.
///
/// Comm  one all-reduce of values.size() doubles
std::vector<double> sum_over_ranks(Communicator& world,
                                   std::span<const double> values,
                                   std::string_view label);

/// `value` of each rank, in the order of ranks.
///
/// Comm  one all-reduce of world_size doubles
std::vector<double> gather_over_ranks(Communicator& world, double value,
                                      std::string_view label);

/// The text that `make` returns on rank 0, on every rank. Where it throws,
/// every rank throws std::runtime_error with its message, so that none is left
/// waiting.
///
/// Comm  two broadcasts
std::string text_from_rank_0(Communicator& world,
                             const std::function<std::string()>& make,
                             std::string_view label);

}  // namespace accordion
