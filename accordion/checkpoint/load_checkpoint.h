// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "accordion/checkpoint/checkpoint_index.h"
#include "accordion/optim/optimizer_state_traits.h"

namespace accordion {

struct LoadOptions {
  /// Parameters and buffers of the module that the checkpoint lacks keep their
  /// values; otherwise an error.
  bool allow_missing = false;
  /// Tensors of the checkpoint's model that the module lacks are left out;
  /// otherwise an error.
  bool allow_unexpected = false;
};

/// What a load found, the same on every rank but for the bytes.
struct LoadResult {
  CheckpointValues values;  ///< those of the caller, and the optimizer's counts
  std::vector<std::string> missing;     ///< FQNs, with allow_missing
  std::vector<std::string> unexpected;  ///< FQNs, with allow_unexpected
  /// Parameters that the optimizer steps and the checkpoint has no state for:
  /// frozen or not there when it was saved. They start afresh.
  std::vector<std::string> fresh_state;
  /// Whether the default random generators continue: at another number of ranks
  /// there is no state for each, and they are left as they are.
  bool random_state = false;
  std::int64_t bytes_read = 0;  ///< by this rank, whole blocks
};

/// Fills a sharded module, and an optimizer's state, from a checkpoint. It may
/// have been saved by any number of ranks, with any strategy, mesh and units:
/// each rank reads the blocks that hold what it owns, and verifies them.
/// Parameters of another floating-point dtype are converted; `.grad()` and
/// hyperparameters are not touched.
///
/// Requires  between passes; all ranks see the folder
/// Comm      two small all-gathers; every rank calls it
/// Memory    a buffer of 1 MiB, and the index
/// Throws    CheckpointError on every rank, which names tensors, files and the
///           ranks that failed. Names, shapes and the optimizer's fields are
///           checked before anything is changed; a damaged block found later
///           leaves the module half filled: load another checkpoint
LoadResult load_checkpoint(torch::nn::Module& root,
                           OptimizerStateAccess* optimizer,
                           const std::filesystem::path& path,
                           const LoadOptions& options);

/// Model and optimizer.
template <HasOptimizerStateTraits Optimizer>
LoadResult load_checkpoint(torch::nn::Module& root, Optimizer& optimizer,
                           const std::filesystem::path& path,
                           const LoadOptions& options = {}) {
  return load_checkpoint(
      root, OptimizerStateTraits<Optimizer>::access(optimizer, root).get(),
      path, options);
}
template <class Contained, HasOptimizerStateTraits Optimizer>
LoadResult load_checkpoint(torch::nn::ModuleHolder<Contained>& root,
                           Optimizer& optimizer,
                           const std::filesystem::path& path,
                           const LoadOptions& options = {}) {
  return load_checkpoint(static_cast<torch::nn::Module&>(*root), optimizer,
                         path, options);
}

/// The model alone.
inline LoadResult load_checkpoint(torch::nn::Module& root,
                                  const std::filesystem::path& path,
                                  const LoadOptions& options = {}) {
  return load_checkpoint(root, nullptr, path, options);
}
template <class Contained>
LoadResult load_checkpoint(torch::nn::ModuleHolder<Contained>& root,
                           const std::filesystem::path& path,
                           const LoadOptions& options = {}) {
  return load_checkpoint(static_cast<torch::nn::Module&>(*root), path, options);
}

}  // namespace accordion
