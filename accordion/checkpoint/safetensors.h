// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "accordion/checkpoint/checkpoint_error.h"
#include "accordion/comm/shm/file_descriptor.h"

namespace accordion {

/// One tensor of a safetensors file, as its header describes it.
struct TensorEntry {
  std::string name;
  std::string dtype;  ///< as the format spells it: "F32", "BF16", "I64", …
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0;  ///< first byte, counted from the start of the file
  std::int64_t end = 0;    ///< one past the last byte

  /// Elements; 1 for a scalar.
  [[nodiscard]] std::int64_t numel() const;
};

/// A safetensors file opened for reading.
///
/// The format: 8 bytes, the length of the header, little-endian; the header, a
/// JSON object from tensor name to dtype, shape and [begin, end) of its bytes
/// counted from the end of the header, and "__metadata__", strings by name; the
/// bytes of the tensors, row-major, little-endian.
///
/// Threads  reads may run at the same time
class SafetensorsFile {
 public:
  /// Opens a file and checks its header in full: lengths, offsets, shapes,
  /// dtypes, names. The tensors' bytes are not read.
  ///
  /// Throws CheckpointError that names the file, and the tensor at fault
  explicit SafetensorsFile(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// In the order of their bytes.
  [[nodiscard]] const std::vector<TensorEntry>& tensors() const {
    return tensors_;
  }
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const {
    return metadata_;
  }
  /// Null when there is no such tensor.
  [[nodiscard]] const TensorEntry* find(std::string_view name) const;

  /// Reads elements [begin, begin + into.size()) of a tensor in row-major
  /// order, converted to fp32 from F32, BF16 or F16. No other bytes are read.
  ///
  /// Throws CheckpointError for another dtype, a range outside the tensor, or
  ///        when the file cannot be read
  void read(const TensorEntry& tensor, std::int64_t begin,
            std::span<float> into) const;

  /// Reads elements from `begin` on, as many as `into` holds, in the dtype in
  /// which they are stored.
  ///
  /// Requires  the range lies in the tensor
  /// Throws    CheckpointError when the file cannot be read
  void read_stored(const TensorEntry& tensor, std::int64_t begin,
                   std::span<std::byte> into) const;

 private:
  std::filesystem::path path_;
  detail::FileDescriptor descriptor_;
  std::vector<TensorEntry> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace accordion
