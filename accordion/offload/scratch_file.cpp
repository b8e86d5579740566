// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/offload/scratch_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "accordion/offload/offload_store.h"

namespace accordion::detail {
namespace {

namespace fs = std::filesystem;

FileDescriptor open_scratch(const fs::path& folder) {
  FileDescriptor file = open_unnamed(folder);
  // Kernels that do not know such files take the folder for what is opened.
  if (!file.valid() && (errno == EOPNOTSUPP || errno == EISDIR)) {
    return open_removed(folder);
  }
  return file;
}

std::uint64_t free_bytes(const fs::path& folder) {
  struct statvfs status {};
  return ::statvfs(folder.c_str(), &status) == 0
             ? static_cast<std::uint64_t>(status.f_bavail) * status.f_frsize
             : 0;
}

/// Whether a disk has not the bytes that are wanted; false where it does not
/// tell. Asked first, as some file systems reserve all they have before they
/// find that it is not enough.
bool is_too_small(int file, std::int64_t bytes) {
  struct statvfs status {};
  return ::fstatvfs(file, &status) == 0 && status.f_blocks > 0 &&
         static_cast<std::uint64_t>(status.f_bfree) * status.f_frsize <
             static_cast<std::uint64_t>(bytes);
}

/// Whether this process may not make a file of so many bytes. Asked first, as
/// the attempt would raise SIGXFSZ, which ends the process.
bool is_above_limit(std::int64_t bytes) {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
         limit.rlim_cur != RLIM_INFINITY &&
         limit.rlim_cur < static_cast<rlim_t>(bytes);
}

}  // namespace

FileDescriptor open_unnamed(const fs::path& folder) {
  return FileDescriptor(
      ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
}

FileDescriptor open_removed(const fs::path& folder) {
  std::string name = folder / ".accordion-offload-XXXXXX";
  FileDescriptor file(::mkostemp(name.data(), O_CLOEXEC));
  if (file.valid() && ::unlink(name.c_str()) != 0) {
    return FileDescriptor();
  }
  return file;
}

ScratchFile::ScratchFile(fs::path folder, std::int64_t bytes, bool direct)
    : folder_(std::move(folder)), bytes_(bytes), file_(open_scratch(folder_)) {
  if (!file_.valid()) {
    fail("made", bytes_);
  }
  reserved_ = reserve(bytes_);
  direct_ = direct && set_direct();
}

void ScratchFile::grow_to(std::int64_t bytes) {
  reserved_ = reserve(bytes) && reserved_;
  bytes_ = bytes;
}

/// Whether the file system can. What it has already is not needed again.
bool ScratchFile::reserve(std::int64_t bytes) const {
  struct stat now = {};
  const std::int64_t had = ::fstat(get(), &now) == 0 ? now.st_size : 0;
  if (bytes <= had) {
    return true;
  }
  if (is_too_small(get(), bytes - had)) {
    errno = ENOSPC;
    fail("reserved", bytes);
  }
  if (is_above_limit(bytes)) {
    errno = EFBIG;
    fail("reserved", bytes);
  }
  int result = 0;
  do {
    result = ::fallocate(get(), 0, had, bytes - had);
  } while (result != 0 && errno == EINTR);
  if (result == 0) {
    return true;
  }
  if (errno != EOPNOTSUPP && errno != ENOSYS) {
    fail("reserved", bytes);
  }
  if (::ftruncate(get(), bytes) != 0) {
    fail("enlarged", bytes);
  }
  return false;
}

/// Whether the file system can. Some say so and then ask for other alignment
/// than ours, which shows in a first read.
bool ScratchFile::set_direct() {
  const int flags = ::fcntl(get(), F_GETFL);
  if (::fcntl(get(), F_SETFL, flags | O_DIRECT) != 0) {
    return false;
  }
  const std::unique_ptr<void, void (*)(void*)> block(
      std::aligned_alloc(kOffloadAlignment, kOffloadAlignment), std::free);
  if (bytes_ == 0 || ::pread(get(), block.get(), kOffloadAlignment, 0) >= 0 ||
      errno != EINVAL) {
    return true;
  }
  (void)::fcntl(get(), F_SETFL, flags);
  return false;
}

void ScratchFile::fail(const char* what, std::int64_t bytes) const {
  const int error = errno;
  throw OffloadError(
      fmt::format("[offload] a scratch file of {} bytes in '{}' cannot be {}: "
                  "{}. {}",
                  bytes, folder_.string(), what, std::strerror(error),
                  advice_on(error, folder_, bytes)));
}

std::string advice_on(int error, const fs::path& folder, std::int64_t bytes) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return fmt::format(
          "{} bytes are needed and {} are free: make room, choose a folder on "
          "another disk, or offload less.",
          bytes, free_bytes(folder));
    case EFBIG:
      return fmt::format(
          "A file may not have {} bytes here; `ulimit -f` shows the limit of "
          "this process.",
          bytes);
    case ENOENT:
    case ENOTDIR:
      return "Make the folder, or choose another one.";
    case EIO:
      return "The disk or its file system is failing: see `dmesg`, and choose "
             "a folder on another one.";
    default:
      return "Choose a folder that this process may write to.";
  }
}

}  // namespace accordion::detail
