// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "accordion/comm/communicator.h"

namespace accordion::benchmarks {

/// Of one call, on the slowest rank; seconds.
struct Times {
  double median = 0;
  double least = 0;
  double processor = 0;  ///< least, which others on the machine do not lengthen
};

/// Times calls that all ranks make together. Made before the ranks part.
class RankClock {
 public:
  explicit RankClock(int world_size);
  RankClock(const RankClock&) = delete;
  RankClock& operator=(const RankClock&) = delete;
  ~RankClock();

  /// On each rank, before the first time_by_turns().
  void begin(Communicator& communicator) { communicator_ = &communicator; }

  /// Times each of `calls`, which move about `bytes` bytes, in rounds in which
  /// each has its turn; from 1 MB on with operands that lie in memory.
  ///
  /// Comm  collective; the result is rank 0's alone
  std::vector<Times> time_by_turns(
      const std::vector<std::function<void()>>& calls, std::int64_t bytes);

 private:
  [[nodiscard]] double slowest(double own);

  const int world_size_;
  double* seconds_;  // [world_size], shared by the ranks
  Communicator* communicator_ = nullptr;
};

}  // namespace accordion::benchmarks
