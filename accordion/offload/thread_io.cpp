// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/offload/thread_io.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace accordion::detail {
namespace {

/// The bytes moved, or minus errno.
std::int64_t move_bytes(int file, const Request& request) {
  const auto [direction, block, offset, memory] = request;
  const ssize_t moved =
      direction == Direction::Read
          ? ::pread(file, memory.data(), memory.size(), offset)
          : ::pwrite(file, memory.data(), memory.size(), offset);
  return moved < 0 ? -errno : moved;
}

/// Has the page cache read a request at once. It would take threads that read
/// here and there for random access, and read little at a time.
void announce(int file, const Request& request) {
  (void)::posix_fadvise(file, request.offset,
                        static_cast<off_t>(request.memory.size()),
                        POSIX_FADV_WILLNEED);
}

/// Drops what the page cache holds of a request, which first has to be on the
/// disk. 0, or why it did not get there.
int forget_pages(int file, const Request& request) {
  const auto size = static_cast<off_t>(request.memory.size());
  if (request.direction == Direction::Write &&
      ::sync_file_range(file, request.offset, size,
                        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                            SYNC_FILE_RANGE_WAIT_AFTER) != 0 &&
      errno != ENOSYS) {
    return errno;
  }
  // Advice: where it is not taken the cache holds more, and all else is right.
  (void)::posix_fadvise(file, request.offset, size, POSIX_FADV_DONTNEED);
  return 0;
}

}  // namespace

ThreadIo::ThreadIo(int file, bool cached, Finished finished)
    : file_(file), cached_(cached), finished_(std::move(finished)) {
  for (int i = 0; i < kIoThreads; ++i) {
    threads_.push_back(start_io_thread([this] { work(); }));
  }
}

ThreadIo::~ThreadIo() {
  queue_.close();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void ThreadIo::start(std::span<const Request> requests) {
  queue_.push(requests);
}

void ThreadIo::work() {
  while (const std::optional<Request> request = queue_.wait_and_pop()) {
    finished_(*request, carry_out(*request));
  }
}

int ThreadIo::carry_out(Request request) const {
  const Request whole = request;
  if (cached_ && request.direction == Direction::Read) {
    announce(file_, request);
  }
  int error = 0;
  Progress progress = Progress::Again;
  while (progress == Progress::Again) {
    if (queue_.closed()) {
      return ECANCELED;
    }
    progress = advance(request, move_bytes(file_, request), error);
  }
  return progress == Progress::Done && cached_ ? forget_pages(file_, whole)
                                               : error;
}

}  // namespace accordion::detail
