// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "accordion/offload/offload_store.h"
#include "accordion/offload/request.h"
#include "accordion/offload/transfer_log.h"

namespace accordion::detail {

/// How the last transfer of a block stands.
struct TransferState {
  Direction direction = Direction::Read;
  int requests_left = 0;
  int error = 0;                  ///< of the first request that failed, errno
  std::int64_t error_offset = 0;  ///< where that was in the file
  std::int64_t bytes = 0;
  std::chrono::steady_clock::time_point begin = {};
};

/// Which transfers are under way, what became of the others, and for how long
/// there were any.
///
/// Threads  any
class Transfers {
 public:
  explicit Transfers(std::size_t num_blocks) : blocks_(num_blocks) {}

  /// Blocks there are from now on, as many as before or more.
  void set_num_blocks(std::size_t num_blocks);

  /// Requires  no request of the block is left
  void begin(int block, Direction direction, int requests, std::int64_t bytes);
  void finish(const Request& request, int error);

  /// Waits until no request of the block is left, or the time is over. How the
  /// transfer stands then.
  [[nodiscard]] TransferState wait(int block,
                                   std::chrono::milliseconds timeout);
  [[nodiscard]] bool in_flight(int block) const;
  [[nodiscard]] OffloadTraffic traffic() const;
  TransferLog& log() { return log_; }

 private:
  using Clock = std::chrono::steady_clock;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TransferState> blocks_;
  TransferLog log_;
  OffloadTraffic traffic_;        // without the time since busy_since_
  int requests_left_ = 0;         // of all blocks
  Clock::time_point busy_since_;  // where any are
};

}  // namespace accordion::detail
