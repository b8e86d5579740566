// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "accordion/checkpoint/safetensors.h"

namespace accordion {

/// The weights of a model: one safetensors file, or a Hugging Face folder with
/// model.safetensors or with model.safetensors.index.json and its shards.
/// Tensors are found by name, whichever file holds them.
///
/// Threads  reads may run at the same time
class WeightSource {
 public:
  /// Throws CheckpointError when the path holds no weights, the index names a
  ///        missing file or a tensor that its file lacks, or two files hold a
  ///        tensor of the same name
  static WeightSource open(const std::filesystem::path& path);

  /// Names in alphabetical order.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] bool contains(std::string_view name) const;

  /// Throws CheckpointError that names the nearest tensors there are
  [[nodiscard]] const TensorEntry& find(std::string_view name) const;

  [[nodiscard]] const std::vector<SafetensorsFile>& files() const {
    return files_;
  }
  /// The file that holds a tensor. Throws as find.
  [[nodiscard]] const SafetensorsFile& file_of(std::string_view name) const;

  /// Reads elements [begin, begin + into.size()) of a tensor as fp32. Only
  /// these bytes are read: a rank reads what it owns.
  ///
  /// Throws CheckpointError as SafetensorsFile::read, and when the tensor's
  ///        shape is not `shape`
  void read(std::string_view name, std::span<const std::int64_t> shape,
            std::int64_t begin, std::span<float> into) const;

 private:
  struct Location {
    std::size_t file;
    const TensorEntry* tensor;  // of that file; vectors keep it in place
  };

  void add_file(const std::filesystem::path& path);
  void add_indexed(const std::filesystem::path& index);
  [[nodiscard]] const Location& locate(std::string_view name) const;

  std::filesystem::path path_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Location, std::less<>> locations_;
};

}  // namespace accordion
