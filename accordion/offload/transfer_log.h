// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "accordion/offload/offload_store.h"

namespace accordion::detail {

/// As TransferSpan has times.
inline std::int64_t nanoseconds(std::chrono::steady_clock::time_point time) {
  return std::chrono::nanoseconds(time.time_since_epoch()).count();
}

/// Transfers that ended, where they are to be recorded.
///
/// Threads  any
class TransferLog {
 public:
  /// Forgets those before where it begins; where it ends, they can be taken.
  void record(bool on) {
    const std::lock_guard lock(mutex_);
    if (on && !on_) {
      spans_.clear();
    }
    on_ = on;
  }
  void add(const TransferSpan& span) {
    const std::lock_guard lock(mutex_);
    if (on_) {
      spans_.push_back(span);
    }
  }
  std::vector<TransferSpan> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(spans_, {});
  }

 private:
  std::mutex mutex_;
  bool on_ = false;
  std::vector<TransferSpan> spans_;
};

}  // namespace accordion::detail
