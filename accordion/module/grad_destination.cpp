// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/module/grad_destination.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

namespace accordion {

namespace {

/// Whether somebody else may hold on to the gradient, whose memory is reused
/// after backward: a hook, whoever asked the engine for it, or a graph of it.
bool outlives_backward(const at::Tensor& parameter) {
  const auto* wanted = torch::autograd::get_current_graph_task_exec_info();
  return at::GradMode::is_enabled() ||
         (wanted != nullptr && !wanted->empty()) ||
         !torch::autograd::impl::hooks(parameter).empty();
}

}  // namespace

at::Tensor grad_destination(const at::Tensor& parameter) {
  if (!parameter.is_leaf() || outlives_backward(parameter)) {
    return {};
  }
  const auto node = torch::autograd::impl::try_get_grad_accumulator(parameter);
  auto* const receiver = dynamic_cast<OffersGradDestination*>(node.get());
  return receiver == nullptr ? at::Tensor() : receiver->offer_destination();
}

}  // namespace accordion
