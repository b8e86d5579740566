// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "accordion/comm/dtype.h"
#include "accordion/comm/streams/stream_device.h"

namespace accordion::detail {

/// Memory that a collective works on in place: rank r's piece is elements
/// [r * numel, (r + 1) * numel) of it, or all of it in an all-reduce.
struct InPlace {
  void* full;
  DType dtype;
  std::int64_t numel;
};

/// Moves bytes between the devices of a group, on a queue of the device. All
/// ranks call the same, in the same order.
///
/// Throws   CommError when the transport fails, or was aborted
/// Threads  fault() and abort() any; the rest one at a time
class Transport {
 public:
  virtual ~Transport() = default;

  /// This rank's piece is there; the others arrive.
  virtual void all_gather(StreamId stream, std::span<const InPlace> parts) = 0;
  /// All pieces are there; the sums of this rank's arrive in its place, rounded
  /// to the parts' dtype, and the rest is spoilt.
  virtual void reduce_scatter(StreamId stream,
                              std::span<const InPlace> parts) = 0;
  virtual void all_reduce(StreamId stream, std::span<const InPlace> parts) = 0;
  virtual void broadcast(StreamId stream, void* data, std::int64_t bytes,
                         int root) = 0;

  /// What went wrong behind the host's back, if something did.
  [[nodiscard]] virtual std::optional<std::string> fault() = 0;
  /// Ends what is in flight, on this rank; later calls throw.
  virtual void abort() noexcept = 0;
};

/// Of a group of one: nothing moves.
class LoneTransport final : public Transport {
 public:
  void all_gather(StreamId, std::span<const InPlace>) override {}
  void reduce_scatter(StreamId, std::span<const InPlace>) override {}
  void all_reduce(StreamId, std::span<const InPlace>) override {}
  void broadcast(StreamId, void*, std::int64_t, int) override {}
  [[nodiscard]] std::optional<std::string> fault() override { return {}; }
  void abort() noexcept override {}
};

}  // namespace accordion::detail
