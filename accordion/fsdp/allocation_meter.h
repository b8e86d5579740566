// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "accordion/schedule/memory_by_kind.h"

namespace accordion {

/// Bytes alive, by the phase in which they were allocated.
struct AllocatedBytes {
  std::array<std::int64_t, kNumMemoryPhases> by_phase = {};

  [[nodiscard]] std::int64_t total() const;
  /// Of forward and backward, and of the rest.
  [[nodiscard]] std::int64_t in_passes() const;
  [[nodiscard]] std::int64_t outside() const { return total() - in_passes(); }
};

/// Counts what a thread allocates for CPU tensors while the meter lives, to the
/// byte, and what becomes of it, whichever thread frees it.
///
/// // [Note: the allocator hook]
/// LibTorch reports allocations to its profiler too, but a free only where the
/// thread that frees has the same profiler, and never what a limit would have
/// to refuse. So the first meter of a process puts an allocator in front of
/// LibTorch's (c10::SetCPUAllocator) for good, which asks that one for memory
/// and enters it in a ledger. It is the one thing here that belongs to the
/// process and not to an object, as the registry it stands in does. Memory from
/// before, and of threads without a meter, passes through.
///
/// Costs    about 0.2 microseconds for a tensor's memory and its end
/// Threads  the one that made it; it then counts for the innermost of a
///          thread's meters. live() and set_limit() also elsewhere
class AllocationMeter {
 public:
  /// An allocation that does not come about.
  struct Refused {
    std::int64_t bytes = 0;
    /// What LibTorch's allocator said; empty: it would exceed the limit.
    std::string error = {};
  };
  /// Throws, in the place of the allocation.
  using OnRefused = std::function<void(const Refused&)>;

  /// Bytes alive after an allocation, or the end of one.
  struct Sample {
    std::int64_t ns = 0;  ///< of the steady clock
    std::int64_t in_passes = 0;
    std::int64_t outside = 0;
  };

  AllocationMeter();
  ~AllocationMeter();
  AllocationMeter(const AllocationMeter&) = delete;
  AllocationMeter& operator=(const AllocationMeter&) = delete;

  /// Counts tensors on meta from here on too, each with the bytes that it would
  /// have elsewhere.
  void count_meta();

  /// What allocations count for from here on; returns what it was.
  MemoryPhase enter(MemoryPhase phase);
  [[nodiscard]] MemoryPhase phase() const;

  [[nodiscard]] AllocatedBytes live() const;
  /// What was alive when the total was highest since the last call.
  [[nodiscard]] AllocatedBytes take_peak();
  /// The phase in which a storage was allocated, by the context of its pointer;
  /// nullopt where this meter has not counted it, or it is freed.
  [[nodiscard]] std::optional<MemoryPhase> phase_of(const void* context) const;

  /// Calls `refused` for an allocation that would bring live() above `bytes`,
  /// or that LibTorch's allocator fails at. Once: what cleans up behind an
  /// error may allocate. nullopt: no limit.
  void set_limit(std::optional<std::int64_t> bytes, OnRefused refused);

  /// Notes a sample at each change from here on, or no more; forgets those
  /// before.
  void record(bool on);
  [[nodiscard]] std::vector<Sample> samples() const;

 private:
  struct Account;
  friend class AllocationLedger;

  std::unique_ptr<Account> account_;
};

}  // namespace accordion
