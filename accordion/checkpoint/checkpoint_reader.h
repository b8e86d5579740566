// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "accordion/checkpoint/checkpoint_index.h"
#include "accordion/comm/shm/file_descriptor.h"

namespace accordion {

/// A checkpoint opened for reading.
///
/// Every byte that is read is verified against the checksum of its block, for
/// which the whole block is read. Files are opened when they are first needed.
///
/// Memory   the index, and one block
/// Threads  one at a time
/// Errors   CheckpointError that names file, tensor and offset
class CheckpointReader {
 public:
  /// Reads and checks the index.
  ///
  /// Throws CheckpointError, also for a folder that is no checkpoint
  explicit CheckpointReader(const std::filesystem::path& folder);

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  [[nodiscard]] const CheckpointIndex& index() const { return *index_; }
  /// A reader of the same checkpoint for another thread; the index is shared.
  [[nodiscard]] CheckpointReader another() const;
  /// `name`, or that of the tensor that "model/ALIAS" stands for; empty where
  /// there is no such tensor.
  [[nodiscard]] std::string_view stored_name(std::string_view name) const;
  /// The tensor of that name, or of the one that "model/ALIAS" stands for; null
  /// where there is none.
  [[nodiscard]] const StoredTensor* find(std::string_view name) const;

  /// Reads elements of a tensor, from element `begin` on as many as `into`
  /// holds, in the dtype in which they are stored.
  ///
  /// Requires  the tensor is there (find), and the range lies in it
  void read(std::string_view name, std::int64_t begin,
            std::span<std::byte> into);

  /// Reads and verifies every block of every file.
  void verify();

  /// Bytes read from files so far, the index left out.
  [[nodiscard]] std::int64_t bytes_read() const { return bytes_read_; }

 private:
  CheckpointReader(std::filesystem::path folder,
                   std::shared_ptr<const CheckpointIndex> index);
  int open_file(std::int64_t file);
  std::span<const std::byte> load_block(std::int64_t file, std::int64_t block);
  void read_bytes(std::int64_t file, std::int64_t offset,
                  std::span<std::byte> into);
  void read_block(std::int64_t file, std::int64_t block,
                  std::span<std::byte> into);
  [[noreturn]] void fail(std::int64_t file, const std::string& fault) const;

  std::filesystem::path folder_;
  std::shared_ptr<const CheckpointIndex> index_;
  std::vector<detail::FileDescriptor> descriptors_;  // of files, once opened
  std::vector<std::byte> buffer_;
  std::int64_t buffered_file_ = -1;  // whose block lies in the buffer
  std::int64_t buffered_block_ = -1;
  std::string_view reading_;  // name of the tensor, for errors
  std::int64_t bytes_read_ = 0;
};

}  // namespace accordion
