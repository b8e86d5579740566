// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "accordion/comm/streams/transport.h"

namespace accordion::detail {

/// Watches collectives that the host does not wait for.
///
/// A peer that never comes leaves a device waiting for good, and the host too,
/// at its next look at a result. So a thread looks at what is in flight: where
/// something has been for longer than the timeout, or the transport reports a
/// fault, it aborts the transport, which lets the device and the host go on,
/// and the next call throws what happened.
///
/// Threads  any
class CallWatch {
 public:
  using Clock = std::chrono::steady_clock;

  CallWatch(StreamDevice& device, Transport& transport, std::string who,
            std::chrono::milliseconds timeout);
  ~CallWatch();
  CallWatch(const CallWatch&) = delete;
  CallWatch& operator=(const CallWatch&) = delete;

  /// Looks by itself from now on, every `interval`.
  void start(std::chrono::milliseconds interval);

  /// A collective was given to the device; it is done once `end` is reached.
  /// `describe` is called only where it fails.
  void add(EventPtr end, std::function<std::string()> describe,
           Clock::time_point now = Clock::now());
  /// One look.
  void look(Clock::time_point now = Clock::now());
  /// Throws CommError once something has failed.
  void check() const;
  [[nodiscard]] std::size_t in_flight() const;

 private:
  struct Call {
    EventPtr end;
    std::function<std::string()> describe;
    Clock::time_point begun;
  };

  void fail(const std::string& what);
  [[nodiscard]] bool failed() const;
  void run(std::chrono::milliseconds interval);

  StreamDevice& device_;
  Transport& transport_;
  const std::string who_;
  const std::chrono::milliseconds timeout_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Call> calls_;              // under mutex_, oldest first
  std::optional<std::string> failure_;  // under mutex_
  bool ends_ = false;                   // under mutex_
  std::thread thread_;                  // last: uses all of the above
};

}  // namespace accordion::detail
