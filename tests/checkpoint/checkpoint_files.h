// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "accordion/checkpoint/checkpoint_folder.h"
#include "accordion/checkpoint/shard_file.h"
#include "tests/checkpoint/weight_files.h"

namespace accordion::testing {

/// A tensor of a test's checkpoint, of dtype I32; element i is first + i.
struct CountedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int32_t first = 0;

  [[nodiscard]] std::int64_t numel() const {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1},
                           std::multiplies<>());
  }
  [[nodiscard]] std::vector<std::int32_t> elements(std::int64_t begin,
                                                   std::int64_t end) const {
    std::vector<std::int32_t> values(static_cast<std::size_t>(end - begin));
    std::iota(values.begin(), values.end(),
              first + static_cast<std::int32_t>(begin));
    return values;
  }
};

/// Writes the shards of a checkpoint that is begun, each tensor cut between
/// ranks at any element.
inline CheckpointIndex write_shards(const std::filesystem::path& folder,
                                    const std::vector<CountedTensor>& tensors,
                                    int world_size) {
  std::vector<ShardReport> reports;
  for (int rank = 0; rank < world_size; ++rank) {
    std::vector<std::vector<std::int32_t>> contents;
    std::vector<TensorRange> ranges;
    for (const CountedTensor& tensor : tensors) {
      const std::int64_t begin = tensor.numel() * rank / world_size;
      const std::int64_t end = tensor.numel() * (rank + 1) / world_size;
      contents.push_back(tensor.elements(begin, end));
      ranges.push_back({tensor.name, "I32", tensor.shape, begin, end,
                        std::as_bytes(std::span(contents.back()))});
    }
    reports.push_back(
        write_shard(folder, shard_file_name(rank, world_size), ranges));
  }
  CheckpointIndex index;
  index.world_size = world_size;
  add_shards(index, reports);
  return index;
}

/// A committed checkpoint of these tensors.
inline void write_checkpoint(const std::filesystem::path& path,
                             const std::vector<CountedTensor>& tensors,
                             int world_size) {
  begin_checkpoint(path);
  commit_checkpoint(path,
                    write_shards(unfinished_folder(path), tensors, world_size));
}

inline void flip_bit(const std::filesystem::path& path, std::int64_t offset) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(offset);
  const char flipped = static_cast<char>(file.get() ^ 0x10);
  file.seekp(offset);
  file.put(flipped);
}

}  // namespace accordion::testing
