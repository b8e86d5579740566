// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

namespace accordion::detail {

/// Runs tasks on a thread of its own, one after another in the order of their
/// submission.
class Lane {
 public:
  Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  /// Waits for the tasks submitted.
  ~Lane();

  /// The future holds what the task threw. It may be dropped.
  std::future<void> submit(std::function<void()> task);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::packaged_task<void()>> tasks_;  // under mutex_
  bool closing_ = false;                          // under mutex_
  std::thread thread_;  // last: starts when the rest is there
};

}  // namespace accordion::detail
