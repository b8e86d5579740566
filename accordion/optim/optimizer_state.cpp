// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/optim/optimizer_state.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

namespace accordion {

namespace {

namespace optim = torch::optim;

template <class AdamState>
std::vector<StateTensor> of_adam(AdamState& state) {
  return {{"exp_avg", &state.exp_avg()},
          {"exp_avg_sq", &state.exp_avg_sq()},
          {"max_exp_avg_sq", &state.max_exp_avg_sq()}};
}

}  // namespace

std::optional<std::vector<StateTensor>> state_tensors(
    optim::OptimizerParamState& state) {
  using List = std::vector<StateTensor>;
  if (auto* users = dynamic_cast<ListsStateTensors*>(&state)) {
    return users->state_tensors();
  }
  if (auto* sgd = dynamic_cast<optim::SGDParamState*>(&state)) {
    return List{{"momentum_buffer", &sgd->momentum_buffer()}};
  }
  if (auto* adam = dynamic_cast<optim::AdamParamState*>(&state)) {
    return of_adam(*adam);
  }
  if (auto* adamw = dynamic_cast<optim::AdamWParamState*>(&state)) {
    return of_adam(*adamw);
  }
  if (auto* rmsprop = dynamic_cast<optim::RMSpropParamState*>(&state)) {
    return List{{"square_avg", &rmsprop->square_avg()},
                {"momentum_buffer", &rmsprop->momentum_buffer()},
                {"grad_avg", &rmsprop->grad_avg()}};
  }
  if (auto* adagrad = dynamic_cast<optim::AdagradParamState*>(&state)) {
    return List{{"sum", &adagrad->sum()}};
  }
  return std::nullopt;
}

}  // namespace accordion
