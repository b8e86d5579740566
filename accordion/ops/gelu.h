// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include "accordion/ops/kernels/gelu.h"
#include "accordion/ops/operand.h"

namespace accordion::ops {

/// Which function GELU is; models name it "gelu" (Exact) or "gelu_new",
/// "gelu_pytorch_tanh" (Tanh).
using kernels::GeluForm;

/// x times the normal distribution up to x. With a bias, of x + bias: the
/// linear layer before it then leaves its own out, and the bias costs no pass,
/// neither over the values nor, for its gradient, over theirs.
///
/// Shapes  x [..., width]; bias [width], of x's dtype, or undefined
/// Memory  keeps x and bias for backward
/// Throws  c10::ValueError when bias is not [width]
at::Tensor gelu(const at::Tensor& x, GeluForm form = GeluForm::Exact,
                const at::Tensor& bias = {});

/// The same; what takes the result keeps x and bias in its place.
Operand recomputed_gelu(const at::Tensor& x, GeluForm form = GeluForm::Exact,
                        const at::Tensor& bias = {});

}  // namespace accordion::ops
