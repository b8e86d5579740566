// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/hierarchical/lane.h"

#include <stdexcept>

#include "accordion/comm/communicator.h"

namespace accordion::detail {

Outcome Outcome::of(const std::function<void()>& task) {
  try {
    task();
    return {};
  } catch (const CommError& error) {
    return {Kind::CommFailed, error.what()};
  } catch (const std::invalid_argument& error) {
    return {Kind::BadArgument, error.what()};
  } catch (const std::logic_error& error) {
    return {Kind::Misuse, error.what()};
  } catch (const std::exception& error) {
    return {Kind::Other, error.what()};
  }
}

void Outcome::rethrow() const {
  switch (kind) {
    case Kind::Done:
      return;
    case Kind::CommFailed:
      throw CommError(message);
    case Kind::Misuse:
      throw std::logic_error(message);
    case Kind::BadArgument:
      throw std::invalid_argument(message);
    case Kind::Other:
      throw std::runtime_error(message);
  }
}

Lane::Lane() : thread_([this] { run(); }) {}

Lane::~Lane() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

std::future<Outcome> Lane::submit(std::function<void()> task) {
  std::packaged_task<Outcome()> packaged(
      [task = std::move(task)] { return Outcome::of(task); });
  std::future<Outcome> done = packaged.get_future();
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
    std::packaged_task<Outcome()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

}  // namespace accordion::detail
