// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "accordion/checkpoint/hugging_face_folder.h"

namespace accordion {

struct ExportOptions {
  /// Of the weights, as safetensors spells it: "F32", "BF16", "F16"; empty:
  /// each tensor as it is stored.
  std::string dtype = {};
  std::int64_t max_shard_bytes = HuggingFaceFolder().max_shard_bytes;
  /// In place of the run's data.tokenizer, as that names it; "none": without
  /// tokenizer files. Empty: the run's own.
  std::string tokenizer = {};
  int num_threads = 0;  ///< 0: as many as cores
};

struct ExportResult {
  WrittenFolder folder;
  std::filesystem::path checkpoint;  ///< that was exported
  bool has_tokenizer = false;
};

/// Writes a Hugging Face folder of a run's newest checkpoint, or of a certain
/// one: weights, config.json, generation_config.json and the tokenizer's files.
/// A run on token files whose tokenizer it does not know has none.
///
/// Throws CheckpointError for a checkpoint that is none, is damaged or lacks
///        what an export needs, and as write_hugging_face_folder;
///        std::invalid_argument for a tokenizer that cannot be read
ExportResult export_run(const std::filesystem::path& run_or_checkpoint,
                        const std::filesystem::path& to,
                        const ExportOptions& options);

}  // namespace accordion
