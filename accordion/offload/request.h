// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>

namespace accordion::detail {

enum class Direction { Read, Write };

/// A piece of a block's transfer: of the file from `offset` on, to or from
/// memory. Both are multiples of kOffloadAlignment, and so is the size.
struct Request {
  Direction direction = Direction::Read;
  int block = 0;
  std::int64_t offset = 0;
  std::span<std::byte> memory =
      {};  // only read where it is written to the file
};

enum class Progress { Done, Again, Failed };

/// What the result of a read or write means for its request: the bytes moved,
/// or minus errno. What was moved is cut off the request, which is to be made
/// Again for the rest. `error` is set where it Failed; a file that ended before
/// is EIO.
Progress advance(Request& request, std::int64_t result, int& error);

/// Requests that nobody works at yet: reads first, each kind in order.
///
/// Threads  any
class RequestQueue {
 public:
  void push(std::span<const Request> requests);
  /// The next one, or nothing where there is none.
  std::optional<Request> pop();
  /// Waits for the next one; nothing once the queue is closed.
  std::optional<Request> wait_and_pop();
  /// Forgets what is queued, for good.
  void close();
  [[nodiscard]] bool closed() const;

 private:
  std::optional<Request> take();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Request> reads_;
  std::deque<Request> writes_;
  bool closed_ = false;
};

/// Carries out requests in the background.
///
/// Threads  start() is called by one thread at a time
class RequestIo {
 public:
  /// Called by a thread of its own once a request is done; 0 or errno.
  using Finished = std::function<void(const Request&, int error)>;

  /// Drops requests that were not begun and waits for the others, however long
  /// that takes: until then the kernel may write to their memory.
  virtual ~RequestIo() = default;
  virtual void start(std::span<const Request> requests) = 0;

  RequestIo(const RequestIo&) = delete;
  RequestIo& operator=(const RequestIo&) = delete;

 protected:
  RequestIo() = default;
};

/// A thread that no signal interrupts: the program's handlers run on its own.
std::thread start_io_thread(std::function<void()> body);

}  // namespace accordion::detail
