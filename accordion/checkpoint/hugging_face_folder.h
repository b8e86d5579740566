// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "accordion/checkpoint/checkpoint_reader.h"
#include "accordion/checkpoint/weight_plan.h"

namespace accordion {

/// A Hugging Face folder to be made of a checkpoint.
struct HuggingFaceFolder {
  std::vector<ParameterShape> parameters = {};  ///< of the model
  /// As safetensors spells it; empty: each tensor as it is stored.
  std::string dtype = {};
  /// Tensors of more bytes together are spread over several files.
  std::int64_t max_shard_bytes = 5'000'000'000;
  /// Contents of the files beside the weights, by name.
  std::map<std::string, std::string> texts = {};
  int num_threads = 1;  ///< that copy and verify
};

struct WrittenFolder {
  std::int64_t num_files = 0;
  std::int64_t bytes = 0;  ///< of all files
  std::int64_t numel = 0;  ///< of all tensors
};

/// Throws CheckpointError unless a folder may be made at `path`: there is none,
/// or an empty one.
void check_can_make_folder(const std::filesystem::path& path);

/// Writes the folder straight from the checkpoint, without ever holding the
/// model. It is written and verified under the name PATH.unfinished and renamed
/// when it is complete and on the disk: when this throws, there is neither.
///
/// Memory  as copy_weights
/// Throws  CheckpointError as check_can_make_folder, weights_of, copy_weights
WrittenFolder write_hugging_face_folder(const CheckpointReader& checkpoint,
                                        const HuggingFaceFolder& content,
                                        const std::filesystem::path& path);

}  // namespace accordion
