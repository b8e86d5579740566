// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "accordion/checkpoint/checkpoint_reader.h"
#include "accordion/checkpoint/load_checkpoint.h"

namespace accordion::detail {

/// Elements of a tensor of a checkpoint that are to be read to memory of this
/// rank.
struct LoadTarget {
  std::string name;                 ///< as in the index
  std::vector<std::int64_t> shape;  ///< global
  std::int64_t begin = 0;
  at::Tensor into;  ///< [end - begin]
};

/// Throws CheckpointError where what is saved under the target's name has
/// another shape, or a dtype that is not converted.
void check_target(const CheckpointReader& reader, const LoadTarget& target);

/// Reads the elements straight to where they are wanted, or by way of a buffer
/// of 1 MiB or less that is converted.
void read_target(CheckpointReader& reader, const LoadTarget& target);

/// What this rank needs of a checkpoint for its part of a sharded module:
/// parameters, ignored ones and buffers. Enters missing and unexpected names in
/// `result`, and changes nothing else.
///
/// Throws CheckpointError for these, unless allowed; as check_target
std::vector<LoadTarget> model_targets(const torch::nn::Module& root,
                                      const CheckpointReader& reader,
                                      const LoadOptions& options,
                                      LoadResult& result);

}  // namespace accordion::detail
