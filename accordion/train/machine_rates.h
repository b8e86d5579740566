// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <c10/core/ScalarType.h>

#include "accordion/comm/communicator.h"

namespace accordion {

/// What the cores and the memory under a run can do, all its ranks at once.
struct MachineRates {
  double matmul_flops = 0.0;  ///< operations a second in matrix products
  double memory_bytes = 0.0;  ///< bytes a second, read and written, of copies
};

/// Side of the square matrices that are multiplied: large enough for the best
/// rate, small enough to take milliseconds.
inline constexpr std::int64_t kMatmulSize = 1024;

/// Measures for about a second, on as many threads as ATen has here: the
/// shortest of many products of square matrices of `dtype`, the shortest of
/// many copies of a block that no cache holds, summed over ranks.
///
/// Comm  two barriers, one all-reduce
MachineRates measure_machine(Communicator& world, c10::ScalarType dtype);

}  // namespace accordion
