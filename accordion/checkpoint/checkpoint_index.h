// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "accordion/checkpoint/checkpoint_error.h"

namespace accordion {

/// A number or text that is saved beside the tensors: a step count, a learning
/// rate, a configuration. Numbers are finite.
using CheckpointValue = std::variant<std::int64_t, double, std::string>;
using CheckpointValues = std::map<std::string, CheckpointValue, std::less<>>;

/// A file of a checkpoint.
struct CheckpointFile {
  std::string name;  ///< in the checkpoint's folder
  std::int64_t bytes = 0;
  std::vector<std::uint64_t> checksums;  ///< of blocks, BlockChecksums
};

/// Where some elements of a tensor are.
///
/// Units  begin and end count elements, in row-major order of the global shape
struct StoredRange {
  std::int64_t file = 0;  ///< of CheckpointIndex::files
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t offset = 0;  ///< of the first element's first byte in the file
};

struct StoredTensor {
  std::string dtype;                ///< as safetensors spells it
  std::vector<std::int64_t> shape;  ///< global
  std::vector<StoredRange> ranges;  ///< in order, and together every element

  [[nodiscard]] std::int64_t numel() const;
};

/// What a checkpoint holds and where: the content of its index.json, specified
/// in docs/checkpoint_format.md.
///
/// Names of tensors begin with what they are: "model/", followed by the FQN of
/// a parameter or buffer; "optimizer/FIELD/" and the FQN for what an optimizer
/// keeps for it; "rng/" and a rank.
struct CheckpointIndex {
  int world_size = 1;  ///< ranks that wrote it
  CheckpointValues values;
  /// Further FQNs of shared parameters, each with the one that is stored.
  std::map<std::string, std::string, std::less<>> aliases;
  std::vector<CheckpointFile> files;
  std::map<std::string, StoredTensor, std::less<>> tensors;

  /// The value of that name. Throws CheckpointError where it is missing or of
  /// another type; `place` stands for the checkpoint in errors.
  [[nodiscard]] std::int64_t integer(std::string_view name,
                                     const std::string& place) const;
};

/// The index as text, its own checksum at the end.
std::string to_text(const CheckpointIndex& index);

/// Reads what to_text wrote, and checks all that can be checked without the
/// files: names, shapes, that ranges cover each tensor once and lie in their
/// files, that there is a checksum for each block. `place` stands for the file
/// in errors.
///
/// Throws CheckpointError that names file, tensor and offset
CheckpointIndex parse_checkpoint_index(std::string_view text,
                                       const std::string& place);

}  // namespace accordion
