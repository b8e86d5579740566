// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "accordion/comm/shm/file_descriptor.h"

namespace accordion {

/// A file of known size whose parts are written in any order, each in place: by
/// several threads, or by several processes of which one creates it.
///
/// Threads  reads and writes may run at the same time
/// Errors   CheckpointError that names file and cause, and for a full disk says
///          how many bytes the file has and how many are free
class PositionedFile {
 public:
  /// A new file of `bytes`. Space is reserved for all of it where the file
  /// system can, so that a disk that is too small is found out at once.
  ///
  /// Throws CheckpointError, also when a file of that name exists
  static PositionedFile create(const std::filesystem::path& path,
                               std::int64_t bytes);
  /// A file that was created, or finished, elsewhere.
  static PositionedFile open(const std::filesystem::path& path);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  void write(std::int64_t offset, std::span<const std::byte> bytes);
  /// Throws CheckpointError, also where the file ends before
  void read(std::int64_t offset, std::span<std::byte> into) const;

  /// Waits until all that was written is on the disk, and lets the system
  /// forget it, so that what is read afterwards comes from there.
  void sync();

 private:
  PositionedFile(std::filesystem::path path, int flags);
  [[noreturn]] void fail(const char* what) const;

  std::filesystem::path path_;
  detail::FileDescriptor descriptor_;
  std::int64_t bytes_ = 0;
};

}  // namespace accordion
