// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include "accordion/fsdp/sharded_module.h"
#include "accordion/optim/adamw.h"

namespace accordion {

/// What an optimizer keeps for one parameter on this rank.
struct ParameterState {
  /// By field ("exp_avg"): [end - begin] of the parameter's piece, in the
  /// optimizer's own memory; or a scalar, the same on every rank.
  std::map<std::string, at::Tensor> tensors;
  /// By name ("step"): the same on every rank.
  std::map<std::string, std::int64_t> counts;
};

/// The state of one optimizer of a sharded module, for what saves and loads it.
class OptimizerStateAccess {
 public:
  virtual ~OptimizerStateAccess() = default;

  /// Of the optimizer, for errors and for what is saved.
  [[nodiscard]] virtual std::string type() const = 0;
  /// Whether it steps the parameter.
  [[nodiscard]] virtual bool steps(const LocalParameter& parameter) = 0;
  /// nullopt where there is none yet: the parameter was never stepped.
  virtual std::optional<ParameterState> find(
      const LocalParameter& parameter) = 0;
  /// The tensor fields that it keeps for a parameter once it has stepped it, in
  /// the order of the alphabet. Requires steps(parameter).
  [[nodiscard]] virtual std::vector<std::string> fields(
      const LocalParameter& parameter) = 0;
  /// State with these fields, whose tensors are about to be filled, in place of
  /// what there is. Requires steps(parameter).
  virtual ParameterState make(const LocalParameter& parameter) = 0;
  /// Forgets the state: the parameter starts afresh.
  virtual void reset(const LocalParameter& parameter) = 0;
  /// Sets the counts of parameters that have state, by FQN.
  virtual void set_counts(
      const std::map<std::string, std::map<std::string, std::int64_t>>&
          counts) = 0;
};

/// How the state of optimizers of type T is reached. Given for accordion::AdamW
/// and for torch::optim's SGD, Adam, AdamW, RMSprop and Adagrad (also through
/// torch::optim::Optimizer&). For another optimizer, specialise it:
///
///     template <>
///     struct accordion::OptimizerStateTraits<Lion> {
///       static std::unique_ptr<accordion::OptimizerStateAccess> access(
///           Lion& optimizer, torch::nn::Module& root);
///     };
template <class T>
struct OptimizerStateTraits;

template <>
struct OptimizerStateTraits<AdamW> {
  static std::unique_ptr<OptimizerStateAccess> access(AdamW& optimizer,
                                                      torch::nn::Module& root);
};

template <>
struct OptimizerStateTraits<torch::optim::Optimizer> {
  /// Throws c10::ValueError, which names this trait, for an optimizer that is
  /// none of those above
  static std::unique_ptr<OptimizerStateAccess> access(
      torch::optim::Optimizer& optimizer, torch::nn::Module& root);
};

template <std::derived_from<torch::optim::Optimizer> T>
struct OptimizerStateTraits<T> {
  static std::unique_ptr<OptimizerStateAccess> access(T& optimizer,
                                                      torch::nn::Module& root) {
    return OptimizerStateTraits<torch::optim::Optimizer>::access(optimizer,
                                                                 root);
  }
};

template <class T>
concept HasOptimizerStateTraits = requires(T& optimizer,
                                           torch::nn::Module& root) {
  {
    OptimizerStateTraits<T>::access(optimizer, root)
    } -> std::same_as<std::unique_ptr<OptimizerStateAccess>>;
};

}  // namespace accordion
