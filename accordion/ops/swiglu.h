// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include "accordion/ops/operand.h"

namespace accordion::ops {

/// silu(gate) * up.
///
/// Shapes  gate, up and the result are alike
/// Memory  keeps gate and up for backward
/// Throws  c10::ValueError when shapes differ
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

/// The same; what takes the result keeps gate and up in its place.
Operand recomputed_swiglu(const at::Tensor& gate, const at::Tensor& up);

}  // namespace accordion::ops
