// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/optimizer.h>

#include "accordion/comm/device_mesh.h"
#include "accordion/fsdp/options.h"

namespace accordion {

/// Shards the parameters of `root`, as fully_shard(root, mesh, options) does,
/// and the state that `optimizer` keeps for them: each state tensor of a
/// parameter's shape is cut to this rank's piece, numbers and step counts stay.
/// For an optimizer that has stepped, or that makes its state when it is
/// constructed (Adagrad); for any other it is the same as fully_shard.
/// Parameter groups and their options are kept.
///
/// Requires  as fully_shard; the state is the same on every rank (checked only
///           as far as the parameters are)
/// Comm      as fully_shard
/// Memory    state shrinks to its pieces, one tensor at a time
/// Throws    c10::ValueError, before anything changes: an LBFGS; a parameter
///           listed twice, or that is not of `root`; state of a type that is
///           not known (ListsStateTensors), on meta, or of another shape
void fully_shard(torch::nn::Module& root, torch::optim::Optimizer& optimizer,
                 const DeviceMesh& mesh, const FsdpOptions& options = {});

template <class Contained>
void fully_shard(torch::nn::ModuleHolder<Contained>& root,
                 torch::optim::Optimizer& optimizer, const DeviceMesh& mesh,
                 const FsdpOptions& options = {}) {
  fully_shard(static_cast<torch::nn::Module&>(*root), optimizer, mesh, options);
}

}  // namespace accordion
