// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/module/unit_hooks.h"

#include <algorithm>

#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include "accordion/module/run_forward.h"

namespace accordion {

namespace {

/// A unit is its module: UnitModule derives from both.
const torch::nn::Module& module_of(const UnitBase& unit) {
  return dynamic_cast<const torch::nn::Module&>(unit);
}

}  // namespace

std::shared_ptr<const void> UnitBase::owner() const {
  return module_of(*this).weak_from_this().lock();
}

bool detail::requires_grad(const std::vector<at::Tensor*>& tensors) {
  return std::ranges::any_of(tensors, [](const at::Tensor* tensor) {
    return tensor->requires_grad();
  });
}

bool detail::has_trainable(const UnitBase& unit) {
  return std::ranges::any_of(
      module_of(unit).parameters(),
      [](const at::Tensor& parameter) { return parameter.requires_grad(); });
}

void detail::throw_not_repeatable(const UnitBase& unit) {
  TORCH_CHECK_VALUE(
      false, "[activation_checkpointing] the forward of '",
      module_of(unit).name(),
      "' takes an argument that cannot be copied, or that it may write to, so "
      "it cannot be called again in backward. Declare it by value or const "
      "reference, or leave the unit out of activation_checkpointing.");
}

void UnitBase::require_unsharded(const char* operation,
                                 const char* remedy) const {
  TORCH_CHECK_VALUE(
      !hooks_, "[Unit::", operation,
      "] the module is sharded, its parameters are pieces on this rank. ",
      remedy);
}

}  // namespace accordion
