// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/streams/call_watch.h"

#include <fmt/format.h>

#include <utility>

namespace accordion::detail {

CallWatch::CallWatch(StreamDevice& device, Transport& transport,
                     std::string who, std::chrono::milliseconds timeout)
    : device_(device),
      transport_(transport),
      who_(std::move(who)),
      timeout_(timeout) {}

CallWatch::~CallWatch() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void CallWatch::start(std::chrono::milliseconds interval) {
  thread_ = std::thread([this, interval] { run(interval); });
}

void CallWatch::run(std::chrono::milliseconds interval) {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, interval, [this] { return ends_; })) {
    lock.unlock();
    look();
    lock.lock();
  }
}

void CallWatch::add(EventPtr end, std::function<std::string()> describe,
                    Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  calls_.push_back({std::move(end), std::move(describe), now});
}

/// Calls of two queues end in another order than they began, so the first that
/// is late need not be the oldest.
void CallWatch::look(Clock::time_point now) {
  if (failed()) {
    return;
  }
  if (const auto fault = transport_.fault()) {
    fail(fmt::format("[nccl] {}: {}", who_, *fault));
    return;
  }
  std::optional<std::string> late;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(calls_, [this](const Call& call) {
      return device_.reached(*call.end);
    });
    for (const Call& call : calls_) {
      if (now - call.begun > timeout_) {
        late = call.describe();
        break;
      }
    }
  }
  if (late) {
    fail(fmt::format(
        "[nccl] {}: {} did not end within {} ms. A peer died, is late, or "
        "called something else; its own output says which. With "
        "DeviceMeshOptions::debug_calls ranks compare what they call.",
        who_, *late, timeout_.count()));
  }
}

void CallWatch::fail(const std::string& what) {
  {
    const std::lock_guard lock(mutex_);
    failure_ = what;
    calls_.clear();
  }
  transport_.abort();
}

bool CallWatch::failed() const {
  const std::lock_guard lock(mutex_);
  return failure_.has_value();
}

void CallWatch::check() const {
  const std::lock_guard lock(mutex_);
  if (failure_) {
    throw CommError(*failure_);
  }
}

std::size_t CallWatch::in_flight() const {
  const std::lock_guard lock(mutex_);
  return calls_.size();
}

}  // namespace accordion::detail
