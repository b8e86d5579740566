// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

namespace accordion {

/// Memory in which the gradient of `parameter` is wanted, so that an operator
/// whose backward computes it as a whole writes it where it is reduced instead
/// of into a tensor that is then copied. For authors of operators:
///
///     at::Tensor gradient = grad_destination(weight);
///     if (gradient.defined()) {
///       at::mm_out(gradient, dy.t(), x);
///     } else {
///       gradient = dy.t().mm(x);
///     }
///     return {…, gradient};
///
/// Undefined where there is none: the parameter is not sharded, another use of
/// it in this backward got the memory, an earlier pass left a gradient to add
/// to, the parameter has hooks, or the caller of backward asked for a graph or
/// for certain inputs only.
///
/// Shapes    as `parameter`, contiguous, of its dtype, not initialised
/// Requires  called in the backward of an operator that saved `parameter`,
///           which fills the memory and returns it as the parameter's gradient
at::Tensor grad_destination(const at::Tensor& parameter);

/// An autograd node that receives gradients of a parameter may be one too.
class OffersGradDestination {
 public:
  virtual ~OffersGradDestination() = default;
  /// As grad_destination, which has seen that nobody else wants the gradient.
  virtual at::Tensor offer_destination() = 0;
};

}  // namespace accordion
