// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <utility>

#include "accordion/ops/attention.h"
#include "accordion/ops/cross_entropy.h"
#include "accordion/ops/gelu.h"
#include "accordion/ops/layer_norm.h"
#include "accordion/ops/rms_norm.h"
#include "accordion/ops/rope.h"
#include "accordion/ops/swiglu.h"

/// The operators of accordion::ops from LibTorch's own: what devices and dtypes
/// without a kernel of ours use, and what tests and benchmarks compare with.
namespace accordion::ops::composite {

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight,
                      const at::Tensor& bias, double eps);
at::Tensor gelu(const at::Tensor& x, GeluForm form, const at::Tensor& bias);
std::pair<at::Tensor, at::Tensor> rope(const at::Tensor& q, const at::Tensor& k,
                                       const RopeTable& table);
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);
CrossEntropy cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                           double divisor);
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v,
                            int64_t window = kWholeSequence);

}  // namespace accordion::ops::composite
