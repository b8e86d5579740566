// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/hierarchical/lane.h"

namespace accordion::detail {

Lane::Lane() : thread_([this] { run(); }) {}

Lane::~Lane() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

std::future<void> Lane::submit(std::function<void()> task) {
  std::packaged_task<void()> packaged(std::move(task));
  std::future<void> done = packaged.get_future();
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(packaged));
  }
  changed_.notify_one();
  return done;
}

void Lane::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return closing_ || !tasks_.empty(); });
    if (tasks_.empty()) {
      return;
    }
    std::packaged_task<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

}  // namespace accordion::detail
