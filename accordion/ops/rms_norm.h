// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include "accordion/ops/normed_sum.h"

namespace accordion::ops {

/// x / sqrt(mean(x^2) + eps) * weight over the last dim.
///
/// Shapes  x [..., width]; weight [width], of x's dtype
/// Memory  keeps x and weight for backward, nothing else
/// Throws  c10::ValueError when weight is not [width]
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

/// sum = stream + branch, or stream where branch is undefined; rms_norm of it.
/// One pass adds and norms, and one takes both gradients back.
///
/// Shapes  stream, branch [..., width], of one dtype; weight [width]
/// Memory  keeps sum and weight for backward, nothing else
/// Throws  c10::ValueError when weight is not [width], or branch not as stream
NormedSum add_rms_norm(const at::Tensor& stream, const at::Tensor& branch,
                       const at::Tensor& weight, double eps);

/// The same; what takes the norm keeps sum and weight in its place.
NormedSum recomputed_add_rms_norm(const at::Tensor& stream,
                                  const at::Tensor& branch,
                                  const at::Tensor& weight, double eps);

}  // namespace accordion::ops
