// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <typeinfo>
#include <utility>

#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>
#include <c10/util/Type.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "accordion/optim/optimizer_state.h"
#include "accordion/optim/optimizer_state_traits.h"

namespace accordion {

namespace {

namespace optim = torch::optim;

/// What must be known of one of torch::optim's optimizers.
struct Kind {
  std::unique_ptr<optim::OptimizerParamState> (*new_state)();
  /// In the order of the alphabet.
  std::vector<std::string> (*fields)(const optim::OptimizerOptions& options);
};

template <class State>
std::unique_ptr<optim::OptimizerParamState> new_state() {
  return std::make_unique<State>();
}

template <class Options>
std::vector<std::string> adam_fields(const optim::OptimizerOptions& options) {
  std::vector<std::string> fields = {"exp_avg", "exp_avg_sq"};
  if (static_cast<const Options&>(options).amsgrad()) {
    fields.emplace_back("max_exp_avg_sq");
  }
  return fields;
}

std::vector<std::string> rmsprop_fields(const optim::OptimizerOptions& any) {
  const auto& options = static_cast<const optim::RMSpropOptions&>(any);
  std::vector<std::string> fields;
  if (options.centered()) {
    fields.emplace_back("grad_avg");
  }
  if (options.momentum() > 0) {
    fields.emplace_back("momentum_buffer");
  }
  fields.emplace_back("square_avg");
  return fields;
}

std::optional<Kind> kind_of(const optim::Optimizer& optimizer) {
  const auto is = [&]<class Type>(std::type_identity<Type>) {
    return dynamic_cast<const Type*>(&optimizer) != nullptr;
  };
  if (is(std::type_identity<optim::AdamW>())) {
    return Kind{new_state<optim::AdamWParamState>,
                adam_fields<optim::AdamWOptions>};
  }
  if (is(std::type_identity<optim::Adam>())) {
    return Kind{new_state<optim::AdamParamState>,
                adam_fields<optim::AdamOptions>};
  }
  if (is(std::type_identity<optim::SGD>())) {
    return Kind{new_state<optim::SGDParamState>,
                [](const optim::OptimizerOptions&) {
                  return std::vector<std::string>{"momentum_buffer"};
                }};
  }
  if (is(std::type_identity<optim::RMSprop>())) {
    return Kind{new_state<optim::RMSpropParamState>, rmsprop_fields};
  }
  if (is(std::type_identity<optim::Adagrad>())) {
    return Kind{new_state<optim::AdagradParamState>,
                [](const optim::OptimizerOptions&) {
                  return std::vector<std::string>{"sum"};
                }};
  }
  return std::nullopt;
}

/// The number of steps that a state counts; null where it counts none.
std::int64_t* step_of(optim::OptimizerParamState& state) {
  if (auto* adamw = dynamic_cast<optim::AdamWParamState*>(&state)) {
    return &adamw->step();
  }
  if (auto* adam = dynamic_cast<optim::AdamParamState*>(&state)) {
    return &adam->step();
  }
  if (auto* rmsprop = dynamic_cast<optim::RMSpropParamState*>(&state)) {
    return &rmsprop->step();
  }
  if (auto* adagrad = dynamic_cast<optim::AdagradParamState*>(&state)) {
    return &adagrad->step();
  }
  return nullptr;
}

class TorchOptimizerState final : public OptimizerStateAccess {
 public:
  TorchOptimizerState(optim::Optimizer& optimizer, Kind kind,
                      torch::nn::Module& root)
      : optimizer_(optimizer), kind_(std::move(kind)) {
    for (const LocalParameter& local : local_parameters(root)) {
      names_.emplace(local.name, local.parameter);
    }
  }

  [[nodiscard]] std::string type() const override {
    return c10::demangle(typeid(optimizer_).name());
  }

  [[nodiscard]] bool steps(const LocalParameter& parameter) override {
    return options_of(parameter) != nullptr;
  }

  std::optional<ParameterState> find(const LocalParameter& parameter) override {
    const auto found = entry(parameter.parameter);
    if (found == optimizer_.state().end()) {
      return std::nullopt;
    }
    return describe(*found->second, parameter);
  }

  [[nodiscard]] std::vector<std::string> fields(
      const LocalParameter& parameter) override {
    return kind_.fields(*options_of(parameter));
  }

  ParameterState make(const LocalParameter& parameter) override {
    const auto kept = fields(parameter);
    auto state = kind_.new_state();
    const auto tensors = state_tensors(*state);
    for (const StateTensor& field : *tensors) {
      if (std::ranges::find(kept, field.field) != kept.end()) {
        *field.tensor = at::empty_like(parameter.parameter.detach());
      }
    }
    ParameterState result = describe(*state, parameter);
    optimizer_.state()[parameter.parameter.unsafeGetTensorImpl()] =
        std::move(state);
    return result;
  }

  void reset(const LocalParameter& parameter) override {
    optimizer_.state().erase(parameter.parameter.unsafeGetTensorImpl());
  }

  void set_counts(
      const std::map<std::string, std::map<std::string, std::int64_t>>& counts)
      override {
    for (const auto& [name, of_parameter] : counts) {
      std::int64_t* const step = step_of(*entry(names_.at(name))->second);
      const auto saved = of_parameter.find("step");
      if (step != nullptr && saved != of_parameter.end()) {
        *step = saved->second;
      }
    }
  }

 private:
  using State = std::remove_reference_t<
      decltype(std::declval<optim::Optimizer&>().state())>;

  State::iterator entry(const at::Tensor& parameter) {
    return optimizer_.state().find(parameter.unsafeGetTensorImpl());
  }

  /// Of the group that lists the parameter; null where none does.
  optim::OptimizerOptions* options_of(const LocalParameter& parameter) {
    for (optim::OptimizerParamGroup& group : optimizer_.param_groups()) {
      for (const at::Tensor& tensor : group.params()) {
        if (tensor.is_same(parameter.parameter)) {
          return &group.options();
        }
      }
    }
    return nullptr;
  }

  ParameterState describe(optim::OptimizerParamState& state,
                          const LocalParameter& parameter) const {
    ParameterState result;
    const auto fields = state_tensors(state);
    TORCH_CHECK_VALUE(fields, "[checkpoint] the state that ", type(),
                      " keeps for parameter '", parameter.name,
                      "' is not known; specialise "
                      "accordion::OptimizerStateTraits for the optimizer.");
    for (const StateTensor& field : *fields) {
      if (field.tensor->defined()) {
        result.tensors.emplace(field.field, field.tensor->view({-1}));
      }
    }
    if (const std::int64_t* step = step_of(state)) {
      result.counts.emplace("step", *step);
    }
    return result;
  }

  optim::Optimizer& optimizer_;
  Kind kind_;
  std::map<std::string, at::Tensor> names_;
};

}  // namespace

std::unique_ptr<OptimizerStateAccess>
OptimizerStateTraits<optim::Optimizer>::access(optim::Optimizer& optimizer,
                                               torch::nn::Module& root) {
  auto kind = kind_of(optimizer);
  TORCH_CHECK_VALUE(
      kind, "[checkpoint] ", c10::demangle(typeid(optimizer).name()),
      " is an optimizer whose state Accordion does not know. Specialise "
      "accordion::OptimizerStateTraits for it, or save the model alone.");
  return std::make_unique<TorchOptimizerState>(optimizer, std::move(*kind),
                                               root);
}

}  // namespace accordion
