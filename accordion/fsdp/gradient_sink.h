// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "accordion/module/autograd_node.h"

namespace accordion {

/// Where the gradients of a unit's parameters go.
class GradientReceiver {
 public:
  virtual ~GradientReceiver() = default;
  /// The gradient of a parameter in its global shape; undefined where autograd
  /// found that it is zero. `source` is the index that its node was made with.
  virtual void receive_gradient(int source, const at::Tensor& gradient) = 0;
  /// Memory for that gradient, whoever computes it; see grad_destination.
  virtual at::Tensor offer_destination(int source) = 0;
  /// Throws c10::Error: a gradient arrived while the parameter was sharded.
  [[noreturn]] virtual void reject_gradient(int source) = 0;
};

/// A node that takes the place of the AccumulateGrad of `parameter`, which must
/// be in its global shape and dtype now, and hands gradients to `receiver`.
///
/// // [Note: gradient sink]
/// AccumulateGrad would add the unsharded gradient to `.grad()`, which is the
/// sharded gradient: other shape, other dtype, and it must survive backward.
/// The sink leaves `.grad()` alone and lets the unit copy the gradient to where
/// it is reduced. It derives from AccumulateGrad, so that the engine gives it
/// the same priority and runs the tensor's own hooks. A node has the shape and
/// dtype of its parameter at the time it was made, so one is made for the
/// unsharded parameter and kept, and another (the guard) for the sharded one.
NodePtr make_gradient_sink(const at::Tensor& parameter, int index,
                           std::weak_ptr<GradientReceiver> receiver);

/// A node for the sharded `parameter`, whose every gradient is an error.
NodePtr make_gradient_guard(const at::Tensor& parameter, int index,
                            std::weak_ptr<GradientReceiver> receiver);

/// Makes `node` the one that receives gradients of `parameter`. Changing the
/// dtype of a parameter's data forgets it.
void set_gradient_node(const at::Tensor& parameter, const NodePtr& node);

}  // namespace accordion
