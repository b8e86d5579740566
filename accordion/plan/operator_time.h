// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>

#include "accordion/plan/gpu_type.h"
#include "accordion/plan/layer_operators.h"
#include "accordion/plan/software_stack.h"
#include "accordion/plan/training.h"

namespace accordion::plan {

/// Where operators run.
struct OperatorMachine {
  GpuType gpu;
  SoftwareStack stack;
  ComputeType compute = ComputeType::Bf16;
  /// Seconds of operators, as they take alone, in a second of a step.
  double pace = 1.0;
};

/// Seconds that an operator takes: a roofline, the time of its arithmetic or
/// that of its memory traffic, whichever is longer, and a launch per kernel.
///
/// // [Note: rate of a product]
/// Tiles of 128 x 256 results are computed in waves, one on each
/// multiprocessor. A wave takes the arithmetic of a tile at peak *
/// gemm_efficiency, shared among the multiprocessors, and gemm_fill_s. So
/// narrow products are slow, the more so the faster the arithmetic is. On a
/// device that was measured (GpuType::measured) the rate is that of the sizes
/// nearest, launches included.
///
/// // [Note: power]
/// Matrix units run into the board's power limit before its clock's. Dynamic
/// power goes with frequency times voltage squared, and voltage with
/// frequency, so the clock goes with the cube root of the limit.
double operator_time(const Operator& op, const OperatorMachine& machine);

/// Of all, one after another.
double total_time(std::span<const Operator> operators,
                  const OperatorMachine& machine);

/// Seconds to move bytes through the device's memory.
double memory_time(double bytes, const GpuType& gpu);

}  // namespace accordion::plan
