// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

namespace accordion {

/// One tensor that an optimizer keeps for a parameter.
struct StateTensor {
  const char* field;   ///< as the optimizer's documentation calls it
  at::Tensor* tensor;  ///< in the state, which may be given another
};

/// Implemented by the state of a user's own optimizer, so that fully_shard can
/// cut it:
///
///     struct LionState :
///     torch::optim::OptimizerCloneableParamState<LionState>,
///                        accordion::ListsStateTensors {
///       TORCH_ARG(torch::Tensor, momentum);
///       std::vector<accordion::StateTensor> state_tensors() override {
///         return {{"momentum", &momentum()}};
///       }
///     };
class ListsStateTensors {
 public:
  virtual ~ListsStateTensors() = default;
  /// Each tensor field, defined or not. Numbers are none.
  virtual std::vector<StateTensor> state_tensors() = 0;
};

/// The tensors of a state: that of torch::optim's SGD, Adam, AdamW,
/// RMSprop and Adagrad, or one that implements ListsStateTensors. nullopt where
/// the type is neither.
std::optional<std::vector<StateTensor>> state_tensors(
    torch::optim::OptimizerParamState& state);

}  // namespace accordion
