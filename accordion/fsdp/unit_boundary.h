// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "accordion/module/autograd_node.h"

namespace accordion {

struct UnitCall;

/// What the executor learns from the autograd graph at the edges of a unit.
class BoundaryListener {
 public:
  virtual ~BoundaryListener() = default;
  /// Gradients of the call's outputs are there; the unit's own backward
  /// follows.
  virtual void enter_backward(UnitCall& call) = 0;
  /// The gradient of one of the call's inputs is there.
  virtual void leave_backward(UnitCall& call) = 0;
};

/// One call of a unit's forward that autograd recorded. Lives as long as its
/// graph; the listener may be gone before.
struct UnitCall {
  std::weak_ptr<BoundaryListener> listener;
  int unit = 0;
  /// The nodes of the views that watch_inputs made: leave_backward follows from
  /// each that the backward runs. Those of inputs that led nowhere are gone.
  std::vector<WeakNodePtr> inputs = {};
};

/// Replaces each input that requires grad by a view of it, whose backward tells
/// the listener. A real view: a forward that writes to its input in place does
/// what it would do without the unit.
void watch_inputs(std::span<at::Tensor* const> inputs,
                  const std::shared_ptr<UnitCall>& call);

/// Has the listener told when the gradients of all outputs that require grad
/// are there: by a hook on the node behind the only one, since a node costs
/// as much in the engine as all that a unit does in a step; else each output is
/// replaced by a tensor of the same memory behind one common node. That tensor
/// is no view, so that writing to it in place, as the caller may, keeps the
/// node in the graph. Outputs for which `aliases_parameter` holds are copied:
/// their memory is about to be freed. Returns whether any output requires grad.
bool watch_outputs(
    std::span<at::Tensor* const> outputs, const std::shared_ptr<UnitCall>& call,
    const std::function<bool(const at::Tensor&)>& aliases_parameter);

}  // namespace accordion
