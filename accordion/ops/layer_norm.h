// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include "accordion/ops/normed_sum.h"

namespace accordion::ops {

/// (x - mean) / sqrt(variance + eps) * weight + bias over the last dim, mean
/// and variance being those of each row.
///
/// Shapes  x [..., width]; weight, bias [width], of x's dtype; bias may be
///         undefined
/// Memory  keeps x and weight for backward, nothing else
/// Throws  c10::ValueError when weight or bias is not [width]
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight,
                      const at::Tensor& bias, double eps);

/// sum = stream + branch, or stream where branch is undefined; layer_norm of
/// it. One pass adds and norms, and one takes both gradients back.
///
/// Shapes  stream, branch [..., width], of one dtype; weight, bias [width]
/// Memory  keeps sum and weight for backward, nothing else
/// Throws  c10::ValueError when weight or bias is not [width], or branch not as
///         stream
NormedSum add_layer_norm(const at::Tensor& stream, const at::Tensor& branch,
                         const at::Tensor& weight, const at::Tensor& bias,
                         double eps);

/// The same; what takes the norm keeps sum, weight and bias in its place.
NormedSum recomputed_add_layer_norm(const at::Tensor& stream,
                                    const at::Tensor& branch,
                                    const at::Tensor& weight,
                                    const at::Tensor& bias, double eps);

}  // namespace accordion::ops
