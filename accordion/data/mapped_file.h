// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace accordion {

/// The bytes of a file, mapped read-only: all ranks of a host share one copy in
/// the page cache, and only what is read is loaded.
///
/// Movable; unmaps when destroyed. The file must not shrink meanwhile.
class MappedFile {
 public:
  /// Throws std::invalid_argument that names the file and the cause when it
  ///        cannot be opened, is no regular file, or is empty
  static MappedFile open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  [[nodiscard]] std::span<const std::uint8_t> bytes() const { return bytes_; }
  [[nodiscard]] std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }

 private:
  explicit MappedFile(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  std::span<const std::uint8_t> bytes_;
};

}  // namespace accordion
