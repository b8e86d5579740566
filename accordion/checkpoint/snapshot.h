// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "accordion/checkpoint/checkpoint_index.h"
#include "accordion/checkpoint/shard_file.h"
#include "accordion/optim/optimizer_state_traits.h"

namespace accordion::detail {

/// What one rank saves, and what the index says besides.
struct Snapshot {
  std::vector<TensorRange> ranges;
  std::vector<at::Tensor> owners;  ///< of the memory of the ranges
  CheckpointValues values;         ///< counts of the optimizer
  std::map<std::string, std::string> aliases;

  [[nodiscard]] std::int64_t bytes() const;
};

/// This rank's part of a sharded module, of the optimizer's state (where not
/// null) and of the random numbers of LibTorch's default generator. Elements
/// that several ranks hold are divided among these, ignored parameters too;
/// buffers are those of rank 0.
///
/// Memory  ranges are the tensors' own memory where that is on the CPU
Snapshot take_snapshot(torch::nn::Module& root,
                       OptimizerStateAccess* optimizer);

/// Copies the ranges to `staging`, which grows where it is too small, and lets
/// them be there.
void stage(Snapshot& snapshot, std::vector<std::byte>& staging);

}  // namespace accordion::detail
