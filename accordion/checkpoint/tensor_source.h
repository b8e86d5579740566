// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "accordion/checkpoint/checkpoint_reader.h"
#include "accordion/checkpoint/weight_source.h"

namespace accordion {

/// What a file says of a tensor.
struct TensorInfo {
  std::string name;
  std::string dtype;                ///< as safetensors spells it
  std::vector<std::int64_t> shape;  ///< global
  std::int64_t numel = 0;
  std::int64_t bytes = 0;
};

/// Where some elements of a tensor are.
///
/// Units  begin and end count elements, in row-major order of the global shape
struct TensorPiece {
  std::optional<int> rank;  ///< that wrote it, where the file's name says so
  std::string file;         ///< without its folder
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t offset = 0;  ///< of the first element's first byte in the file
};

/// Tensors by name, whatever they are stored in: a checkpoint, a safetensors
/// file, or a Hugging Face folder.
///
/// Memory   what the headers or the index hold, and one block of a checkpoint
/// Threads  one at a time
/// Errors   CheckpointError
class TensorSource {
 public:
  /// Opens the folder of a checkpoint; the newest complete checkpoint of a run,
  /// given its folder or the folder of its checkpoints; or what WeightSource
  /// opens.
  ///
  /// Throws CheckpointError, also where the path is none of these
  static TensorSource open(const std::filesystem::path& path);

  /// What was opened: for a run, its checkpoint.
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// Checkpoints of which this is the newest; 0 where the path named it.
  [[nodiscard]] std::int64_t newest_of() const { return newest_of_; }
  /// Null where it is no checkpoint, and where it is no plain weights.
  [[nodiscard]] CheckpointReader* checkpoint();
  [[nodiscard]] const CheckpointReader* checkpoint() const;
  [[nodiscard]] const WeightSource* weights() const;

  /// In alphabetical order; without aliases.
  [[nodiscard]] const std::vector<TensorInfo>& tensors() const {
    return tensors_;
  }
  /// The tensor of that name or alias; null where there is none.
  [[nodiscard]] const TensorInfo* find(std::string_view name) const;
  /// In order of their elements; together they are the tensor.
  [[nodiscard]] std::vector<TensorPiece> pieces(const TensorInfo& tensor) const;

  /// Reads elements from `begin` on, as many as `into` holds, in the dtype in
  /// which they are stored. What a checkpoint holds is verified.
  ///
  /// Requires  the tensor is of this source, and the range lies in it
  void read(const TensorInfo& tensor, std::int64_t begin,
            std::span<std::byte> into);

 private:
  using Content = std::variant<CheckpointReader, WeightSource>;
  TensorSource(std::filesystem::path path, Content content);

  std::filesystem::path path_;
  Content content_;
  std::vector<TensorInfo> tensors_;
  std::int64_t newest_of_ = 0;
};

/// The rank that wrote a file of that name (shard_file_name), if it is one.
std::optional<int> rank_of_shard(std::string_view file_name, int world_size);

}  // namespace accordion
