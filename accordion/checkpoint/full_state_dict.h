// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <string>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "accordion/optim/optimizer_state_traits.h"

namespace accordion {

/// Receives a whole tensor under the name that it has in a checkpoint:
/// "model/FQN", "optimizer/exp_avg/FQN", "optimizer/step/FQN".
using StateVisitor =
    std::function<void(const std::string& name, const torch::Tensor& tensor)>;

/// Calls `visit` on rank 0 with everything of a sharded module and its
/// optimizer, whole, one tensor after the other: parameters, buffers, what the
/// optimizer keeps for each parameter (counts as scalars). For programs that
/// want one file of their own; save_checkpoint is faster, and gathers nothing.
///
///     accordion::full_state_dict(net, optimizer,
///                                [&](const auto& name, const auto& tensor) {
///       torch::save(tensor, folder + "/" + escaped(name) + ".pt");
///     });
///
/// What `visit` throws is thrown on rank 0, without another call of it, once
/// the other ranks have what they wait for.
///
/// Requires  between passes; every rank calls it
/// Comm      that of full_parameters, and for each state tensor two all-gathers
/// Memory    one section, then twice one state tensor
/// Throws    c10::ValueError when `root` is not sharded
void full_state_dict(torch::nn::Module& root, OptimizerStateAccess& optimizer,
                     const StateVisitor& visit);

template <HasOptimizerStateTraits Optimizer>
void full_state_dict(torch::nn::Module& root, Optimizer& optimizer,
                     const StateVisitor& visit) {
  full_state_dict(
      root, *OptimizerStateTraits<Optimizer>::access(optimizer, root), visit);
}
template <class Contained, HasOptimizerStateTraits Optimizer>
void full_state_dict(torch::nn::ModuleHolder<Contained>& root,
                     Optimizer& optimizer, const StateVisitor& visit) {
  full_state_dict(static_cast<torch::nn::Module&>(*root), optimizer, visit);
}

}  // namespace accordion
