// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "accordion/checkpoint/block_checksum.h"

namespace accordion {

/// What was written of a file.
struct WrittenFile {
  std::int64_t bytes = 0;
  std::vector<std::uint64_t> checksums;  ///< of its blocks
};

/// A new file that is on the disk, not only in the system's memory, when
/// finish() returns. Without finish() it is removed again.
///
/// // [Note: writing past the page cache]
/// What is written is copied to one buffer while threads write others to the
/// disk, with O_DIRECT where the file system has it: pages of the cache cost
/// several times the processor time of checksum and copy, and a checkpoint
/// would drive out what the run reads. The last, incomplete buffer takes the
/// usual way, as direct writes have to be aligned.
///
/// Memory  four buffers of 2 MiB
/// Errors  CheckpointError that names file and cause, and for a full disk says
///         how many bytes it was to hold and how many are free
class DurableFile {
 public:
  /// `expected_bytes` is what will be written; space is reserved for all of it
  /// where the file system can, so that a disk that is too small is found out
  /// before the first byte.
  ///
  /// Throws CheckpointError, also when a file of that name exists
  DurableFile(const std::filesystem::path& path, std::int64_t expected_bytes);
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }

  /// Waits for the disk and closes the file.
  WrittenFile finish();

 private:
  struct Buffer {
    struct Free {
      void operator()(std::byte* bytes) const;
    };
    Buffer();
    std::unique_ptr<std::byte, Free> bytes;  // aligned as direct writes require
    std::size_t size = 0;                    // that is filled
    std::future<int> writing = {};           // by a thread: errno, or 0
  };

  [[noreturn]] void fail(const char* what) const;
  void reserve() const;
  void abandon();
  void start_writing(Buffer& buffer);
  void await_writing(Buffer& buffer) const;

  std::filesystem::path path_;
  std::int64_t expected_bytes_;
  std::array<Buffer, 4> buffers_;
  std::size_t filling_ = 0;  // which of them
  int descriptor_ = -1;
  std::int64_t bytes_ = 0;
  BlockChecksums checksums_;
};

/// Where a file or folder of that name is written until it is complete.
std::filesystem::path unfinished_path(const std::filesystem::path& path);

/// Writes a small file so that readers see the old content or the new one,
/// whatever happens meanwhile. Throws CheckpointError.
void replace_file(const std::filesystem::path& path, std::string_view content);

/// Waits until what was written to a file is on the disk. Throws
/// CheckpointError.
void sync_file(const std::filesystem::path& path);

/// Waits until the names in a folder are on the disk: files that were made,
/// renamed or removed. Throws CheckpointError.
void sync_folder(const std::filesystem::path& folder);

/// Renames a file or folder, and waits until both names are on the disk. Throws
/// CheckpointError.
void rename_durably(const std::filesystem::path& from,
                    const std::filesystem::path& to);

}  // namespace accordion
