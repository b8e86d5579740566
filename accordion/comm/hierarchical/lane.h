// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <string>
#include <thread>

namespace accordion::detail {

/// What became of a task. A value and not an exception: libstdc++ counts the
/// owners of an exception where the thread sanitizer cannot see it.
struct Outcome {
  enum class Kind { Done, CommFailed, Misuse, BadArgument, Other };
  Kind kind = Kind::Done;
  std::string message = {};

  /// Runs `task` and catches what it throws.
  static Outcome of(const std::function<void()>& task);
  /// Throws what was caught, by kind: CommError, std::logic_error,
  /// std::invalid_argument, std::runtime_error.
  void rethrow() const;
};

/// Runs tasks on a thread of its own, one after another in the order of their
/// submission.
class Lane {
 public:
  Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  /// Waits for the tasks submitted.
  ~Lane();

  /// The future may be dropped.
  std::future<Outcome> submit(std::function<void()> task);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::packaged_task<Outcome()>> tasks_;  // under mutex_
  bool closing_ = false;                             // under mutex_
  std::thread thread_;  // last: starts when the rest is there
};

}  // namespace accordion::detail
