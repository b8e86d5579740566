// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "accordion/checkpoint/checkpoint_index.h"

namespace accordion {

/// Elements of a tensor that one rank saves.
struct TensorRange {
  std::string name;                 ///< as in CheckpointIndex::tensors
  std::string dtype;                ///< as safetensors spells it
  std::vector<std::int64_t> shape;  ///< global
  std::int64_t begin = 0;  ///< elements, in row-major order of the global shape
  std::int64_t end = 0;
  std::span<const std::byte> bytes;  ///< of the caller
};

/// What a rank tells rank 0 of the file that it wrote.
struct ShardReport {
  struct Part {
    std::string name;
    std::string dtype;
    std::vector<std::int64_t> shape;
    StoredRange range;  ///< `file` is not set
  };
  CheckpointFile file;
  std::vector<Part> parts;
};

/// Writes the file of one rank, a safetensors file: each range under its name,
/// as rows where it begins and ends at rows, else flat. It is on the disk when
/// this returns.
///
/// Throws CheckpointError
ShardReport write_shard(const std::filesystem::path& folder,
                        const std::string& file_name,
                        std::span<const TensorRange> ranges);

/// A report as text, and back; for ranks of one run, who trust each other.
std::string to_text(const ShardReport& report);
ShardReport parse_shard_report(std::string_view text);

/// Enters the files of all ranks, and what they hold, in an index. Throws
/// CheckpointError where ranges do not make up each tensor: nothing that would
/// be incomplete is ever committed.
void add_shards(CheckpointIndex& index, std::span<const ShardReport> reports);

}  // namespace accordion
