// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "accordion/data/mapped_file.h"

namespace accordion {

/// [Note: cache files]
/// What is made of the data once is kept in files of one form: a header, then
/// `count` unsigned little-endian numbers of `width` bytes. docs/data.md has it
/// byte by byte. The header's fingerprint stands for all that the content
/// depends on; where it is another, the file is made anew. A file appears under
/// its name when it is whole, so that it is read by many while one writes.

/// The header of a cache file.
struct CacheHeader {
  static constexpr std::int64_t kBytes = 32;

  int width = 0;  ///< bytes: 2, 4 or 8
  std::int64_t count = 0;
  std::uint64_t fingerprint = 0;
};

/// The header of a whole cache file; none where there is no file, or one that
/// is cut, damaged, or of another version.
std::optional<CacheHeader> read_cache_header(const std::filesystem::path& path);

/// Stands for size and time of change of a file: what tells, without reading
/// it, that it is still the same.
std::uint64_t file_state(const std::filesystem::path& path);

/// Writes a cache file number by number, under another name until commit().
/// Without commit() nothing is left.
class CacheWriter {
 public:
  /// Makes the folder if there is none.
  ///
  /// Throws std::runtime_error that names folder or file: cannot be written
  CacheWriter(const std::filesystem::path& path, int width,
              std::uint64_t fingerprint);
  CacheWriter(const CacheWriter&) = delete;
  CacheWriter& operator=(const CacheWriter&) = delete;
  ~CacheWriter();

  /// Appends a number that fits into the width.
  void append(std::uint64_t number);
  [[nodiscard]] std::int64_t count() const { return header_.count; }
  /// The file appears, whole and on disk, in place of an older one.
  void commit();

 private:
  [[noreturn]] void fail(const char* what) const;
  void write(const void* data, std::size_t bytes);
  void write_header();

  std::filesystem::path path_;
  std::string part_;  // the name until then
  CacheHeader header_;
  std::FILE* file_ = nullptr;
};

/// A cache file of 64-bit positions, mapped.
class PositionTable {
 public:
  /// Throws std::invalid_argument when it is no whole file of width 8
  static PositionTable open(const std::filesystem::path& path);

  [[nodiscard]] std::span<const std::int64_t> values() const;

 private:
  explicit PositionTable(MappedFile file) : file_(std::move(file)) {}
  MappedFile file_;
};

}  // namespace accordion
