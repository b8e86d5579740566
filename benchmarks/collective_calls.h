// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "accordion/comm/communicator.h"
#include "benchmarks/rank_clock.h"

namespace accordion::benchmarks {

enum class Collective { AllGather, ReduceScatter, AllReduce, Barrier };
[[nodiscard]] const char* name(Collective collective);

/// Bytes that all ranks together read and write at least, by the kind of loop.
struct Traffic {
  double copied = 0;
  double added = 0;
  [[nodiscard]] double bytes() const { return copied + added; }
};

/// A collective with its operands: the full tensor has `bytes` bytes in `wire`.
/// Shards and sums are fp32, as in training.
class CollectiveCalls {
 public:
  /// Comm  collective: allocates
  CollectiveCalls(Communicator& communicator, Collective collective, DType wire,
                  std::int64_t bytes);

  /// From the start to the result, and to the release of the buffer.
  [[nodiscard]] std::function<void()> call() const;
  [[nodiscard]] Traffic traffic() const;

 private:
  void gather(std::size_t turn) const;
  void reduce() const;

  Communicator& communicator_;
  const Collective collective_;
  const DType wire_;
  const std::int64_t numel_;  // of the full tensor
  std::vector<std::unique_ptr<CommBuffer>> slots_;
  std::unique_ptr<CommBuffer> gradients_;
  std::unique_ptr<CommBuffer> local_;  // [numel] of fp32, private
};

/// The loops that say what memory allows for tensors of a size.
class MemoryLimit {
 public:
  MemoryLimit(int world_size, std::int64_t bytes);

  /// To be timed first, in this order.
  [[nodiscard]] std::vector<std::function<void()>> calls() const;
  /// The least time for `traffic`, by one kind of the times of calls().
  [[nodiscard]] double seconds(const Traffic& traffic,
                               const std::vector<Times>& times,
                               double Times::*kind) const;

 private:
  const int world_size_;
  const std::int64_t numel_;            // fp32 elements that a loop writes
  std::unique_ptr<CommBuffer> memory_;  // [4, numel]: two operands, two results
};

}  // namespace accordion::benchmarks
