// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

namespace accordion::ops {

/// A target that counts neither in the loss nor in `correct`.
inline constexpr int64_t kIgnoredTarget = -100;

struct CrossEntropy {
  at::Tensor loss;     ///< scalar, fp32: sum of -log p(target), over divisor
  at::Tensor correct;  ///< scalar, int64: rows whose largest logit is the
                       ///< target's; of equal logits the first counts
};

/// Cross-entropy of logits against class indices, in fp32 whatever the dtype of
/// the logits; loss and gradient are found in one pass.
///
/// `divisor` is what the sum is divided by: the number of targets in the batch,
/// or in the batches of all ranks together.
///
/// Shapes  logits [rows, classes]; targets [rows], int64
/// Memory  keeps the gradient of the logits, in their dtype, for backward
/// Throws  c10::ValueError for other shapes or dtypes, a target that is no
///         class, or divisor <= 0
CrossEntropy cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                           double divisor);

/// The same, with the gradient written over the logits, which nobody may read
/// afterwards. Where logits need no gradient they stay as they are.
///
/// Requires  logits are not kept for backward by the operator that made them
///           (matrix products do not); autograd reports it otherwise
CrossEntropy cross_entropy_(const at::Tensor& logits, const at::Tensor& targets,
                            double divisor);

namespace detail {

/// The same outside of autograd, for logits that has_kernel() holds for: their
/// gradient, less the factor below, is written over them.
CrossEntropy cross_entropy_with_gradient_(const at::Tensor& logits,
                                          const at::Tensor& targets,
                                          double divisor);
/// What the gradient that is written has to be multiplied by, beside the loss's
/// own.
double gradient_factor(at::ScalarType dtype, double divisor);

/// Throws c10::ValueError as cross_entropy for logits [rows, classes].
void check_cross_entropy(int64_t rows, int64_t classes,
                         const at::Tensor& targets, double divisor);

}  // namespace detail

}  // namespace accordion::ops
