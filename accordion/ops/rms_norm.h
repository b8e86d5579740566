// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include "accordion/ops/operand.h"

namespace accordion::ops {

/// x / sqrt(mean(x^2) + eps) * weight over the last dim.
///
/// Shapes  x [..., width]; weight [width], of x's dtype
/// Memory  keeps x and weight for backward, nothing else
/// Throws  c10::ValueError when weight is not [width]
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

/// The same; what takes the result keeps x and weight in its place.
Operand recomputed_rms_norm(const at::Tensor& x, const at::Tensor& weight,
                            double eps);

}  // namespace accordion::ops
