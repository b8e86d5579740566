// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/offload/request.h"

#include <pthread.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "accordion/offload/offload_store.h"

namespace accordion::detail {

Progress advance(Request& request, std::int64_t result, int& error) {
  if (result == -EINTR || result == -EAGAIN) {
    return Progress::Again;
  }
  if (result < 0) {
    error = static_cast<int>(-result);
    return Progress::Failed;
  }
  if (static_cast<std::size_t>(result) == request.memory.size()) {
    return Progress::Done;
  }
  // Direct transfers go on at a multiple of the alignment only.
  const std::int64_t moved = result / kOffloadAlignment * kOffloadAlignment;
  if (moved == 0) {
    error = EIO;
    return Progress::Failed;
  }
  request.offset += moved;
  request.memory = request.memory.subspan(static_cast<std::size_t>(moved));
  return Progress::Again;
}

void RequestQueue::push(std::span<const Request> requests) {
  {
    const std::lock_guard lock(mutex_);
    for (const Request& request : requests) {
      (request.direction == Direction::Read ? reads_ : writes_)
          .push_back(request);
    }
  }
  changed_.notify_all();
}

/// Called with the mutex held.
std::optional<Request> RequestQueue::take() {
  std::deque<Request>& queue = reads_.empty() ? writes_ : reads_;
  if (closed_ || queue.empty()) {
    return std::nullopt;
  }
  const Request request = queue.front();
  queue.pop_front();
  return request;
}

std::optional<Request> RequestQueue::pop() {
  const std::lock_guard lock(mutex_);
  return take();
}

std::optional<Request> RequestQueue::wait_and_pop() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock,
                [&] { return closed_ || !reads_.empty() || !writes_.empty(); });
  return take();
}

void RequestQueue::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
}

bool RequestQueue::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

std::thread start_io_thread(std::function<void()> body) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(body));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace accordion::detail
