// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "accordion/checkpoint/checkpoint_index.h"
#include "accordion/optim/optimizer_state_traits.h"

namespace accordion {

/// Saves a sharded module as a folder in which each rank writes what it owns
/// (docs/checkpoint_format.md): no rank holds more than its share, and any
/// number of ranks can load it.
///
///     accordion::save_checkpoint(net, optimizer, "run/step-1000");
///
/// Saved are parameters, buffers (those of rank 0), the optimizer's state, the
/// state of each rank's default random generator, and `values`, numbers and
/// texts of the caller's. The folder appears under its name when it is complete
/// and on the disk; when anything fails there is none, and what was there
/// before is as it was.
///
/// Requires  between passes; the folder is seen by all ranks
/// Comm      five small collectives; every rank calls it
/// Memory    8 MiB; for tensors of another device, a copy of them
/// Throws    CheckpointError on every rank: the path exists, or a rank could
///           not write, named with its reason; CommError
void save_checkpoint(torch::nn::Module& root, OptimizerStateAccess* optimizer,
                     const std::filesystem::path& path,
                     const CheckpointValues& values);

/// Model and optimizer.
template <HasOptimizerStateTraits Optimizer>
void save_checkpoint(torch::nn::Module& root, Optimizer& optimizer,
                     const std::filesystem::path& path,
                     const CheckpointValues& values = {}) {
  save_checkpoint(
      root, OptimizerStateTraits<Optimizer>::access(optimizer, root).get(),
      path, values);
}
template <class Contained, HasOptimizerStateTraits Optimizer>
void save_checkpoint(torch::nn::ModuleHolder<Contained>& root,
                     Optimizer& optimizer, const std::filesystem::path& path,
                     const CheckpointValues& values = {}) {
  save_checkpoint(static_cast<torch::nn::Module&>(*root), optimizer, path,
                  values);
}

/// The model alone.
inline void save_checkpoint(torch::nn::Module& root,
                            const std::filesystem::path& path,
                            const CheckpointValues& values = {}) {
  save_checkpoint(root, nullptr, path, values);
}
template <class Contained>
void save_checkpoint(torch::nn::ModuleHolder<Contained>& root,
                     const std::filesystem::path& path,
                     const CheckpointValues& values = {}) {
  save_checkpoint(static_cast<torch::nn::Module&>(*root), path, values);
}

}  // namespace accordion
