// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/durable_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <fmt/format.h>

#include "accordion/checkpoint/checkpoint_error.h"

namespace accordion {
namespace {

namespace fs = std::filesystem;

/// Enough for a disk to reach its rate with a few requests at a time.
constexpr std::size_t kBufferBytes = 2 << 20;
/// The largest that disks and file systems ask of direct writes.
constexpr std::size_t kAlignment = 4096;
static_assert(kBufferBytes % kChecksumBlockBytes == 0);

/// What a person who reads of a failed write wants to know besides its cause.
std::string advice(int error, const fs::path& path, std::int64_t bytes) {
  if (error == ENOSPC || error == EDQUOT) {
    struct statvfs status {};
    const fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
    const auto free_bytes =
        ::statvfs(folder.c_str(), &status) == 0
            ? static_cast<std::uint64_t>(status.f_bavail) * status.f_frsize
            : 0;
    return fmt::format(
        "It needs {} bytes and {} are free: make room, or lower "
        "checkpoint.keep.",
        bytes, free_bytes);
  }
  if (error == EFBIG) {
    return fmt::format(
        "It needs {} bytes, more than a file may have here; `ulimit -f` shows "
        "the limit of this process.",
        bytes);
  }
  if (error == EEXIST) {
    return "A checkpoint is never overwritten: choose another path.";
  }
  return "Check that the folder exists and may be written to.";
}

[[noreturn]] void fail_with(const char* what, const fs::path& path,
                            std::int64_t bytes) {
  const int error = errno;
  throw CheckpointError(fmt::format("[checkpoint] '{}' cannot be {}: {}. {}",
                                    path.string(), what, std::strerror(error),
                                    advice(error, path, bytes)));
}

/// Whether a disk has not the bytes that are wanted; false where it does not
/// tell. Asked first, as some file systems reserve all they have before they
/// find that it is not enough.
bool is_too_small(int descriptor, std::int64_t bytes) {
  struct statvfs status {};
  return ::fstatvfs(descriptor, &status) == 0 && status.f_blocks > 0 &&
         static_cast<std::uint64_t>(status.f_bfree) * status.f_frsize <
             static_cast<std::uint64_t>(bytes);
}

/// Whether writes go past the page cache from now on. Where they cannot, they
/// do not.
void set_direct(int descriptor, bool direct) {
  const int flags = ::fcntl(descriptor, F_GETFL);
  (void)::fcntl(descriptor, F_SETFL,
                direct ? flags | O_DIRECT : flags & ~O_DIRECT);
}

/// 0, or why it failed.
int write_fully(int descriptor, std::int64_t offset,
                std::span<const std::byte> bytes) {
  bool direct = true;
  while (!bytes.empty()) {
    const ssize_t now =
        ::pwrite(descriptor, bytes.data(), bytes.size(), offset);
    if (now >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(now));
      offset += now;
    } else if (errno == EINVAL && std::exchange(direct, false)) {
      set_direct(descriptor, false);  // its alignment is not ours
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace

void DurableFile::Buffer::Free::operator()(std::byte* bytes) const {
  std::free(bytes);
}

DurableFile::Buffer::Buffer()
    : bytes(static_cast<std::byte*>(
          std::aligned_alloc(kAlignment, kBufferBytes))) {
  if (bytes == nullptr) {
    throw std::bad_alloc();
  }
}

DurableFile::DurableFile(const fs::path& path, std::int64_t expected_bytes)
    : path_(path),
      expected_bytes_(expected_bytes),
      descriptor_(
          ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644)) {
  if (descriptor_ < 0) {
    fail("made");
  }
  // The destructor does not run for a constructor that throws.
  try {
    reserve();
  } catch (...) {
    abandon();
    throw;
  }
  set_direct(descriptor_, true);
}

DurableFile::~DurableFile() {
  abandon();
}

/// What is there of it would keep a full disk full.
void DurableFile::abandon() {
  for (Buffer& buffer : buffers_) {
    if (buffer.writing.valid()) {
      buffer.writing.wait();
    }
  }
  if (descriptor_ >= 0) {
    ::close(std::exchange(descriptor_, -1));
    ::unlink(path_.c_str());
  }
}

void DurableFile::reserve() const {
  if (expected_bytes_ <= 0) {
    return;
  }
  if (is_too_small(descriptor_, expected_bytes_)) {
    errno = ENOSPC;
    fail("written");
  }
  // Not posix_fallocate: where the file system cannot reserve, that writes
  // zeros.
  if (::fallocate(descriptor_, FALLOC_FL_KEEP_SIZE, 0, expected_bytes_) != 0 &&
      (errno == ENOSPC || errno == EDQUOT)) {
    fail("written");
  }
}

void DurableFile::fail(const char* what) const {
  fail_with(what, path_, expected_bytes_);
}

void DurableFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    Buffer& buffer = buffers_[filling_];
    await_writing(buffer);
    // A block at a time at most, so that it is summed while in the cache.
    const std::size_t now =
        std::min({bytes.size(), kBufferBytes - buffer.size,
                  static_cast<std::size_t>(checksums_.bytes_left())});
    std::byte* const into = buffer.bytes.get() + buffer.size;
    std::memcpy(into, bytes.data(), now);
    checksums_.add({into, now});
    buffer.size += now;
    bytes_ += static_cast<std::int64_t>(now);
    bytes = bytes.subspan(now);
    if (buffer.size == kBufferBytes) {
      start_writing(buffer);
      filling_ = (filling_ + 1) % buffers_.size();
    }
  }
}

/// Of a buffer that ends where the file does so far.
void DurableFile::start_writing(Buffer& buffer) {
  const std::span<const std::byte> bytes(buffer.bytes.get(), buffer.size);
  buffer.writing =
      std::async(std::launch::async, write_fully, descriptor_,
                 bytes_ - static_cast<std::int64_t>(bytes.size()), bytes);
}

/// Afterwards the buffer is free.
void DurableFile::await_writing(Buffer& buffer) const {
  if (buffer.writing.valid()) {
    errno = buffer.writing.get();
    if (errno != 0) {
      fail("written");
    }
    buffer.size = 0;
  }
}

WrittenFile DurableFile::finish() {
  for (Buffer& buffer : buffers_) {
    await_writing(buffer);
  }
  const Buffer& rest = buffers_[filling_];
  set_direct(descriptor_, false);
  errno =
      write_fully(descriptor_, bytes_ - static_cast<std::int64_t>(rest.size),
                  {rest.bytes.get(), rest.size});
  if (errno != 0) {
    fail("written");
  }
  if (::fsync(descriptor_) != 0) {
    fail("written");
  }
  if (::close(std::exchange(descriptor_, -1)) != 0) {
    fail("written");
  }
  return {.bytes = bytes_, .checksums = checksums_.finish()};
}

fs::path unfinished_path(const fs::path& path) {
  return path.string() + ".unfinished";
}

void replace_file(const fs::path& path, std::string_view content) {
  const fs::path unfinished = unfinished_path(path);
  std::error_code ignored;
  fs::remove(unfinished, ignored);  // of a process that was killed
  DurableFile file(unfinished, static_cast<std::int64_t>(content.size()));
  file.write(content);
  (void)file.finish();
  rename_durably(unfinished, path);
}

void sync_file(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    fail_with("opened", path, 0);
  }
  const int failed = ::fsync(descriptor);
  const int error = errno;
  ::close(descriptor);
  // Some network file systems sync names by themselves and refuse.
  if (failed != 0 && error != EINVAL) {
    errno = error;
    fail_with("written", path, 0);
  }
}

void sync_folder(const fs::path& folder) {
  sync_file(folder.empty() ? fs::path(".") : folder);
}

void rename_durably(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    fail_with("renamed", from, 0);
  }
  sync_folder(to.parent_path());
  if (from.parent_path() != to.parent_path()) {
    sync_folder(from.parent_path());
  }
}

}  // namespace accordion
