// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include "accordion/ops/cross_entropy.h"

namespace accordion::ops {

/// cross_entropy of linear(hidden, weight), `rows` of hidden at a time: of all
/// logits those of so many rows exist at a time, which matters where classes
/// are many, as in a large vocabulary.
///
/// // [Note: gradients in forward]
/// A chunk's gradients follow from its logits at once, but for the factor that
/// the loss's own gradient is. So forward computes them with the loss, adds up
/// those of the weight, and backward multiplies by the factor: the three
/// products of the unchunked loss, none twice.
///
/// Where there is no kernel of ours (devices, fp64) each chunk's forward is
/// called again in backward instead.
///
/// Shapes  hidden [n, width]; weight [classes, width]; targets [n], int64
/// Memory  keeps the gradients of hidden and weight from forward to backward,
///         in their dtype, for fp16 in fp32; and the logits of `rows` for a
///         moment
/// Throws  c10::ValueError as cross_entropy; for rows <= 0
CrossEntropy linear_cross_entropy(const at::Tensor& hidden,
                                  const at::Tensor& weight,
                                  const at::Tensor& targets, double divisor,
                                  int64_t rows);

}  // namespace accordion::ops
