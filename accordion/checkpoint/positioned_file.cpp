// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/positioned_file.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "accordion/checkpoint/checkpoint_error.h"

namespace accordion {
namespace {

namespace fs = std::filesystem;

std::string advice(int error, const fs::path& path, std::int64_t bytes) {
  if (error == ENOSPC || error == EDQUOT) {
    std::error_code ignored;
    const fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
    return fmt::format(
        "It has {} bytes and {} are free on the disk: make room, or choose "
        "another one.",
        bytes, fs::space(folder, ignored).available);
  }
  if (error == EEXIST) {
    return "Nothing is overwritten: choose another path.";
  }
  return "Check that the folder exists and may be written to.";
}

}  // namespace

PositionedFile::PositionedFile(fs::path path, int flags)
    : path_(std::move(path)),
      descriptor_(::open(path_.c_str(), flags | O_CLOEXEC, 0644)) {
  if (!descriptor_.valid()) {
    fail("opened");
  }
}

PositionedFile PositionedFile::create(const fs::path& path,
                                      std::int64_t bytes) {
  PositionedFile file(path, O_RDWR | O_CREAT | O_EXCL);
  file.bytes_ = bytes;
  if (::ftruncate(file.descriptor_.get(), bytes) != 0) {
    file.fail("written");
  }
  // Not posix_fallocate: where the file system cannot reserve, that writes
  // zeros.
  if (bytes > 0 &&
      ::fallocate(file.descriptor_.get(), FALLOC_FL_KEEP_SIZE, 0, bytes) != 0 &&
      (errno == ENOSPC || errno == EDQUOT)) {
    file.fail("written");
  }
  return file;
}

PositionedFile PositionedFile::open(const fs::path& path) {
  PositionedFile file(path, O_RDWR);
  file.bytes_ = ::lseek(file.descriptor_.get(), 0, SEEK_END);
  return file;
}

void PositionedFile::fail(const char* what) const {
  const int error = errno;
  throw CheckpointError(fmt::format("[export] '{}' cannot be {}: {}. {}",
                                    path_.string(), what, std::strerror(error),
                                    advice(error, path_, bytes_)));
}

void PositionedFile::write(std::int64_t offset,
                           std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t now =
        ::pwrite(descriptor_.get(), bytes.data(), bytes.size(), offset);
    if (now < 0 && errno == EINTR) {
      continue;
    }
    if (now < 0) {
      fail("written");
    }
    bytes = bytes.subspan(static_cast<std::size_t>(now));
    offset += now;
  }
}

void PositionedFile::read(std::int64_t offset,
                          std::span<std::byte> into) const {
  while (!into.empty()) {
    const ssize_t now =
        ::pread(descriptor_.get(), into.data(), into.size(), offset);
    if (now < 0 && errno == EINTR) {
      continue;
    }
    if (now < 0) {
      fail("read");
    }
    if (now == 0) {
      throw CheckpointError(
          fmt::format("[export] '{}' ends before byte {}. Something else has "
                      "changed it; export again.",
                      path_.string(), offset));
    }
    into = into.subspan(static_cast<std::size_t>(now));
    offset += now;
  }
}

void PositionedFile::sync() {
  if (::fsync(descriptor_.get()) != 0) {
    fail("written");
  }
  (void)::posix_fadvise(descriptor_.get(), 0, 0, POSIX_FADV_DONTNEED);
}

}  // namespace accordion
