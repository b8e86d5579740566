// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace accordion {

/// The bytes of a file, mapped read-only: all ranks of a host share one copy in
/// the page cache, and only what is read is loaded.
///
/// Movable; unmaps when destroyed. The file must not shrink meanwhile.
class TextFile {
 public:
  /// Throws std::invalid_argument that names the file and the cause when it
  ///        cannot be opened, is no regular file, or is empty
  static TextFile open(const std::filesystem::path& path);

  TextFile(TextFile&& other) noexcept;
  TextFile& operator=(TextFile&& other) noexcept;
  ~TextFile();

  [[nodiscard]] std::span<const std::uint8_t> bytes() const { return bytes_; }

 private:
  explicit TextFile(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  std::span<const std::uint8_t> bytes_;
};

}  // namespace accordion
