// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>

#include "accordion/comm/shm/file_descriptor.h"

namespace accordion::detail {

/// A file without a name, gone with its last descriptor.
FileDescriptor open_unnamed(const std::filesystem::path& folder);
/// The same where the file system has no such files: made with a name, which is
/// removed at once. Both: no descriptor, and errno, where it cannot be made.
FileDescriptor open_removed(const std::filesystem::path& folder);

/// [Note: scratch file], see nvme_store.h.
///
/// Throws  OffloadError that names folder and cause
class ScratchFile {
 public:
  /// `bytes` is a multiple of kOffloadAlignment. `direct`: past the page cache
  /// where the file system can.
  ScratchFile(std::filesystem::path folder, std::int64_t bytes, bool direct);

  /// Makes it longer. Where that fails it is as long as before.
  void grow_to(std::int64_t bytes);

  [[nodiscard]] int get() const { return file_.get(); }
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  [[nodiscard]] bool direct() const { return direct_; }
  /// Whether its space is there; otherwise it is taken as it is written.
  [[nodiscard]] bool reserved() const { return reserved_; }

 private:
  bool reserve(std::int64_t bytes) const;
  bool set_direct();
  [[noreturn]] void fail(const char* what, std::int64_t bytes) const;

  std::filesystem::path folder_;
  std::int64_t bytes_;
  FileDescriptor file_;
  bool reserved_ = false;
  bool direct_ = false;
};

/// What a person can do about an error in such a folder; `bytes` is what is
/// needed there.
std::string advice_on(int error, const std::filesystem::path& folder,
                      std::int64_t bytes);

}  // namespace accordion::detail
