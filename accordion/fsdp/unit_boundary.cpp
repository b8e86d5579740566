// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/unit_boundary.h"

#include <vector>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "accordion/module/autograd_node.h"

namespace accordion {

namespace {

using torch::autograd::variable_list;

/// Runs after the backward of an input's view.
class InputHook final : public torch::autograd::FunctionPostHook {
 public:
  explicit InputHook(std::shared_ptr<UnitCall> call) : call_(std::move(call)) {}

  variable_list operator()(const variable_list& grad_inputs,
                           const variable_list& /*grad_outputs*/) override {
    if (const auto listener = call_->listener.lock()) {
      listener->leave_backward(*call_);
    }
    return grad_inputs;
  }

 private:
  std::shared_ptr<UnitCall> call_;
};

void enter_backward(UnitCall& call) {
  if (const auto listener = call.listener.lock()) {
    listener->enter_backward(call);
  }
}

/// Runs before the backward of what computed the output of a call.
class OutputHook final : public torch::autograd::FunctionPreHook {
 public:
  explicit OutputHook(std::shared_ptr<UnitCall> call)
      : call_(std::move(call)) {}

  variable_list operator()(const variable_list& gradients) override {
    enter_backward(*call_);
    return gradients;
  }

 private:
  std::shared_ptr<UnitCall> call_;
};

/// Identity on all outputs of a call.
class OutputNode final : public torch::autograd::Node {
 public:
  explicit OutputNode(std::shared_ptr<UnitCall> call)
      : call_(std::move(call)) {}

  variable_list apply(variable_list&& gradients) override {
    enter_backward(*call_);
    return std::move(gradients);
  }

 private:
  std::shared_ptr<UnitCall> call_;
};

/// Whether a hook on the node behind an output is as good as a node of its own.
/// Not on a view's: the view gets another when it is written to in place. Nor
/// beside the hook of a unit inside, which would run before that of this one.
bool can_be_hooked(const at::Tensor& output) {
  return !output.is_view() && output.grad_fn() &&
         output.grad_fn()->pre_hooks().empty();
}

}  // namespace

void watch_inputs(std::span<at::Tensor* const> inputs,
                  const std::shared_ptr<UnitCall>& call) {
  for (at::Tensor* input : inputs) {
    if (!input->requires_grad()) {
      continue;
    }
    *input = input->alias();
    const auto& view = input->grad_fn();
    view->add_post_hook(std::make_unique<InputHook>(call));
    call->inputs.emplace_back(view);
  }
}

bool watch_outputs(
    std::span<at::Tensor* const> outputs, const std::shared_ptr<UnitCall>& call,
    const std::function<bool(const at::Tensor&)>& aliases_parameter) {
  std::vector<at::Tensor*> watched;
  for (at::Tensor* output : outputs) {
    if (aliases_parameter(*output)) {
      *output = output->clone();
    }
    if (output->requires_grad()) {
      watched.push_back(output);
    }
  }
  if (watched.empty()) {
    return false;
  }
  if (watched.size() == 1 && can_be_hooked(*watched.front())) {
    watched.front()->grad_fn()->add_pre_hook(
        std::make_unique<OutputHook>(call));
    return true;
  }
  const NodePtr node = make_node<OutputNode>(call);
  for (at::Tensor* output : watched) {
    node->add_next_edge(torch::autograd::impl::gradient_edge(*output));
    *output = with_node_behind(*output, node);
  }
  return true;
}

}  // namespace accordion
