// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/optim/shard_optimizer.h"

#include <string>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <c10/util/Type.h>
#include <torch/optim/lbfgs.h>

#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/optim/optimizer_state.h"

namespace accordion {

namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerParamState;

/// FQNs by the object that modules and optimizers share.
using Names = std::unordered_map<const c10::TensorImpl*, std::string>;

Names names_of(const torch::nn::Module& root) {
  Names names;
  for (const auto& item : root.named_parameters()) {
    names.try_emplace(item.value().unsafeGetTensorImpl(), item.key());
  }
  return names;
}

template <class Polymorphic>
std::string type_name(const Polymorphic& object) {
  return c10::demangle(typeid(object).name());
}

/// The state kept for a parameter; null where there is none yet.
OptimizerParamState* state_of(Optimizer& optimizer, const at::Tensor& tensor) {
  const auto entry = optimizer.state().find(tensor.unsafeGetTensorImpl());
  return entry == optimizer.state().end() ? nullptr : entry->second.get();
}

void check_algorithm(const Optimizer& optimizer) {
  TORCH_CHECK_VALUE(
      dynamic_cast<const torch::optim::LBFGS*>(&optimizer) == nullptr,
      "[fully_shard] torch::optim::LBFGS takes dot products over all "
      "parameters, which no rank has: on pieces each rank would go its own "
      "way. Use an optimizer that treats elements alone, such as AdamW, or "
      "Strategy::NoShard without passing the optimizer here.");
}

void check_state(OptimizerParamState& state, const Optimizer& optimizer,
                 const at::Tensor& parameter, const std::string& name) {
  const auto tensors = state_tensors(state);
  TORCH_CHECK_VALUE(tensors, "[fully_shard] ", type_name(optimizer),
                    " keeps a ", type_name(state), " for parameter '", name,
                    "', of which Accordion knows no fields. Let that type "
                    "implement accordion::ListsStateTensors, or make the "
                    "optimizer after fully_shard.");
  for (const auto& [field, tensor] : *tensors) {
    if (!tensor->defined()) {
      continue;
    }
    TORCH_CHECK_VALUE(!tensor->is_meta(), "[fully_shard] field '", field,
                      "' of ", type_name(optimizer), " for parameter '", name,
                      "' is on meta: it was made before the parameter had "
                      "values. Make the optimizer after materialize or "
                      "fully_shard.");
    TORCH_CHECK_VALUE(
        tensor->dim() == 0 || tensor->sizes() == parameter.sizes(),
        "[fully_shard] field '", field, "' of ", type_name(optimizer),
        " for parameter '", name, "' has shape ", tensor->sizes(),
        " and the parameter ", parameter.sizes(),
        ". Only state with one element for each of the parameter's can be "
        "cut; make the optimizer after fully_shard.");
  }
}

void check_optimizer(const torch::nn::Module& root, Optimizer& optimizer) {
  check_algorithm(optimizer);
  const Names names = names_of(root);
  std::unordered_set<const c10::TensorImpl*> seen;
  for (std::size_t group = 0; group < optimizer.param_groups().size();
       ++group) {
    for (const at::Tensor& tensor : optimizer.param_groups()[group].params()) {
      const auto name = names.find(tensor.unsafeGetTensorImpl());
      TORCH_CHECK_VALUE(
          name != names.end(), "[fully_shard] group ", group, " of ",
          type_name(optimizer), " lists a tensor ", tensor.sizes(),
          " that is no parameter of ", root.name(),
          ". Make the optimizer of accordion::parameters(net), and shard the "
          "module whose parameters it steps.");
      TORCH_CHECK_VALUE(seen.insert(name->first).second, "[fully_shard] ",
                        type_name(optimizer), " lists parameter '",
                        name->second,
                        "' twice, so that it would be stepped "
                        "twice. Make the optimizer of "
                        "accordion::parameters(net), which lists each once.");
      if (auto* state = state_of(optimizer, tensor)) {
        check_state(*state, optimizer, tensor, name->second);
      }
    }
  }
}

void cut_state(OptimizerParamState& state, const LocalParameter& local) {
  const auto tensors = state_tensors(state);
  for (const auto& [field, tensor] : *tensors) {
    if (tensor->defined() && tensor->sizes() == local.global_shape) {
      *tensor = tensor->reshape({-1})
                    .slice(0, local.begin, local.end)
                    .clone()
                    .view(local.parameter.sizes());
    }
  }
}

}  // namespace

void fully_shard(torch::nn::Module& root, Optimizer& optimizer,
                 const DeviceMesh& mesh, const FsdpOptions& options) {
  check_optimizer(root, optimizer);
  fully_shard(root, mesh, options);
  const at::NoGradGuard no_grad;
  for (const LocalParameter& local : local_parameters(root)) {
    if (auto* state = state_of(optimizer, local.parameter)) {
      cut_state(*state, local);
    }
  }
}

}  // namespace accordion
