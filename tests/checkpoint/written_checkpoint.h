// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "accordion/checkpoint/checkpoint_folder.h"
#include "accordion/checkpoint/shard_file.h"

namespace accordion::testing {

/// A checkpoint of several ranks, written by one process.
class WrittenCheckpoint {
 public:
  explicit WrittenCheckpoint(int world_size)
      : ranges_(static_cast<std::size_t>(world_size)) {
    index.world_size = world_size;
  }

  /// A rank saves elements of a tensor, from `begin` on.
  template <class T>
  void add(int rank, const std::string& name, const std::string& dtype,
           std::vector<std::int64_t> shape, std::int64_t begin,
           const std::vector<T>& values) {
    std::vector<std::byte>& bytes =
        bytes_.emplace_back(values.size() * sizeof(T));
    if (!values.empty()) {
      std::memcpy(bytes.data(), values.data(), bytes.size());
    }
    ranges_[static_cast<std::size_t>(rank)].push_back(
        {.name = name,
         .dtype = dtype,
         .shape = std::move(shape),
         .begin = begin,
         .end = begin + static_cast<std::int64_t>(values.size()),
         .bytes = bytes});
  }

  void commit(const std::filesystem::path& folder) {
    begin_checkpoint(folder);
    std::vector<ShardReport> reports;
    const int world_size = index.world_size;
    for (int rank = 0; rank < world_size; ++rank) {
      reports.push_back(write_shard(unfinished_folder(folder),
                                    shard_file_name(rank, world_size),
                                    ranges_[static_cast<std::size_t>(rank)]));
    }
    add_shards(index, reports);
    commit_checkpoint(folder, index);
  }

  CheckpointIndex index;  ///< values and aliases are set before commit()

 private:
  std::vector<std::vector<TensorRange>> ranges_;
  std::list<std::vector<std::byte>> bytes_;
};

/// `first`, `first` + 1, … : what element it is shows in its value.
inline std::vector<float> counting(std::int64_t numel, float first = 0.0F) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < numel; ++i) {
    values.push_back(first + static_cast<float>(i));
  }
  return values;
}

/// Three ranks, step 7: "model/w" [5, 2] counts from 0, rows 2, 2 and 1; flat
/// "model/odd" [2, 3] from 100, elements 4, 2 and 0; "model/bias" [2], on
/// rank 1; an optimizer's "optimizer/m/w"; "rng/0" to 2.
inline void write_three_ranks(const std::filesystem::path& folder,
                              float first = 0.0F) {
  WrittenCheckpoint checkpoint(3);
  checkpoint.index.values = {{"trainer/step", std::int64_t{7}},
                             {"trainer/config", "a = 1\nb = 2\n"},
                             {"lr", 0.25}};
  checkpoint.index.aliases = {{"tied", "w"}};
  for (const int rank : {0, 1, 2}) {
    const std::int64_t rows = rank == 2 ? 1 : 2;
    for (const char* name : {"model/w", "optimizer/m/w"}) {
      checkpoint.add(
          rank, name, "F32", {5, 2}, rank * 4,
          counting(rows * 2, first + 4.0F * static_cast<float>(rank)));
    }
    const std::vector<std::uint8_t> state = {std::uint8_t(rank)};
    checkpoint.add(rank, "rng/" + std::to_string(rank), "U8", {1}, 0, state);
  }
  checkpoint.add(0, "model/odd", "F32", {2, 3}, 0, counting(4, 100));
  checkpoint.add(1, "model/odd", "F32", {2, 3}, 4, counting(2, 104));
  checkpoint.add(2, "model/odd", "F32", {2, 3}, 6, counting(0));
  checkpoint.add(1, "model/bias", "F32", {2}, 0, counting(2, 200));
  checkpoint.commit(folder);
}

/// Changes a byte of a file.
inline void damage(const std::filesystem::path& file, std::int64_t offset) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(offset);
  const char byte = static_cast<char>(stream.get() ^ 1);
  stream.seekp(offset);
  stream.put(byte);
}

}  // namespace accordion::testing
