// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "accordion/comm/shm/file_descriptor.h"
#include "accordion/comm/shm/memory.h"

namespace accordion::benchmarks {

/// Bytes in memory that cannot be compressed, and that dd can read.
class Source {
 public:
  explicit Source(std::int64_t bytes);
  /// While this process lives.
  [[nodiscard]] std::string path() const;
  [[nodiscard]] const std::byte* data() const { return bytes_.data(); }

 private:
  detail::FileDescriptor file_;
  detail::Mapping bytes_;
};

/// dd past the page cache, in a folder, with files that are there before
/// anything is timed.
class Dd {
 public:
  Dd(const std::filesystem::path& folder, const Source& source);
  ~Dd();
  Dd(const Dd&) = delete;
  Dd& operator=(const Dd&) = delete;

  /// As many bytes as the source has.
  void write() const;
  void read() const;
  /// Both at once, of two files.
  void read_and_write() const;

 private:
  [[nodiscard]] pid_t start_write(const std::string& file) const;
  [[nodiscard]] pid_t start_read() const;

  std::string file_;
  std::string other_;
  std::string source_;
};

}  // namespace accordion::benchmarks
