// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "accordion/comm/communicator.h"
#include "accordion/comm/dtype.h"

namespace accordion::detail {

/// The queues of a device, each of which does its work in order, and none of
/// which waits for another unless it is told to.
enum class StreamId : std::uint8_t {
  Caller,  ///< what the calling thread computes on; it may change between calls
  Gather,
  Reduce,
};

/// A point in a queue: reached once all that was given to it before is done.
class StreamEvent {
 public:
  virtual ~StreamEvent() = default;
};
using EventPtr = std::shared_ptr<const StreamEvent>;

/// A device that computes behind the host's back, as far as collectives need
/// one: memory, queues, events, and the arithmetic of [Note: streams].
///
/// Real (comm/nccl) and played (tests), so that what waits for what is tested
/// where there is no device.
///
/// Threads  reached() any; the rest one at a time
class StreamDevice {
 public:
  virtual ~StreamDevice() = default;

  /// Number of the CUDA device; none where tensors on its memory are the CPU's.
  [[nodiscard]] virtual std::optional<int> cuda_device() const = 0;
  /// Whether the address is one of the device's memory.
  [[nodiscard]] virtual bool holds(const void* address) const = 0;

  /// Memory that was zeroed in the order of the caller's queue. Throws
  /// CommError that names the bytes.
  [[nodiscard]] virtual std::byte* allocate(std::int64_t bytes,
                                            std::string_view label) = 0;
  /// Requires  no queue but the caller's still uses it
  virtual void free(std::byte* memory) noexcept = 0;

  [[nodiscard]] virtual EventPtr record(StreamId stream) = 0;
  /// What is given to `stream` from now on begins after the event.
  virtual void wait(StreamId stream, const StreamEvent& event) = 0;
  [[nodiscard]] virtual bool reached(const StreamEvent& event) const = 0;
  /// Blocks the host.
  virtual void block_until(const StreamEvent& event) noexcept = 0;

  /// As detail::convert, on a queue.
  virtual void convert(StreamId stream, void* to, DType to_dtype,
                       const void* from, DType from_dtype,
                       std::int64_t numel) = 0;
  /// Stores sums [part.numel] that lie in the device's memory as `part` says:
  /// scaled, rounded, added where it accumulates, squares summed.
  virtual void store_sums(StreamId stream, const void* sums,
                          const ReducePart& part) = 0;
};

}  // namespace accordion::detail
