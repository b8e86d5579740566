// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "accordion/ops/operand.h"

namespace accordion::ops {

/// x times the transpose of weight, plus bias where it is defined: at::linear.
///
/// // [Note: matmuls in fp32]
/// LibTorch hands fp32 products to MKL, which runs AVX2 code on processors that
/// are not Intel's, AVX-512 or not. Where the processor has AVX-512 and is not
/// Intel's, the output and the gradient of x go through oneDNN, which uses it.
/// At 256 x 1024 x 2752 on an AMD EPYC (Zen 4), GFLOP/s a core: output 105
/// against 82, gradient of x 104 against 93. The weight's gradient, 95 against
/// 94, stays with MKL.
///
/// // [Note: matmuls by tiles]
/// Where bf16 is multiplied by tiles (AMX), a left operand that lies column by
/// column takes twice as long as one that lies row by row. The gradient of the
/// weight, dy^T x, is computed from copies of dy^T, 4 MiB at a time. Intel
/// Xeon, a core: at 1024 x 512 x 1376 1.0 ms and 0.36 for the copy,
/// against 2.3.
///
/// // [Note: matmuls in fp16]
/// LibTorch multiplies halves with a loop of about 1 GFLOP/s where the
/// processor has no instructions for it. On the CPU operands are widened to
/// fp32, and the result is rounded.
///
/// The weight's gradient is computed where a sharded module reduces it; see
/// grad_destination. Other dtypes and devices take at::linear.
///
/// Shapes  x [..., in]; weight [out, in]; bias [out] or undefined
/// Memory  keeps weight for backward, and x or what it is computed from
at::Tensor linear(const Operand& x, const at::Tensor& weight,
                  const at::Tensor& bias = {});

/// Of one linear layer.
struct LinearParameters {
  at::Tensor weight;
  at::Tensor bias = {};  ///< or undefined
};

/// linear of one x with each of `layers`. Backward adds the gradient of x up
/// inside the products, rounded after each, where autograd would add tensors.
std::vector<at::Tensor> linears(const Operand& x,
                                const std::vector<LinearParameters>& layers);

/// Whether linear takes oneDNN for fp32 on this machine.
bool linear_uses_onednn();

namespace detail {

/// The same through oneDNN. Requires fp32 on the CPU, and linear_uses_onednn()
/// or a processor on which oneDNN works as well.
at::Tensor onednn_linear(const at::Tensor& x, const at::Tensor& weight,
                         const at::Tensor& bias);

/// to [out, in] = dy [n, out] transposed times x [n, in], or += that.
void multiply_transposed(const at::Tensor& dy, const at::Tensor& x,
                         at::Tensor& to, bool accumulate);

}  // namespace detail
}  // namespace accordion::ops
