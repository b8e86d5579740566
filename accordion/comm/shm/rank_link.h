// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "accordion/comm/shm/control.h"
#include "accordion/comm/shm/memory.h"

namespace accordion::detail {

/// Bytes of one half of a rank's staging area: a round of an operation on
/// ordinary memory. Two halves of all ranks should fit the last-level cache.
inline constexpr std::int64_t kStageBytes = std::int64_t{1} << 20;

/// One allocation, made alike by every rank.
struct SegmentRequest {
  std::uint64_t number;  ///< of the allocation, from 1
  std::int64_t bytes;    ///< whole pages
  std::string_view label;
  bool one_per_rank;  ///< else one segment, of rank 0
};

/// How the ranks of a group reach each other's memory: ranks as processes pass
/// memfds through sockets, ranks as threads share the mapping itself.
///
/// The steps of an allocation are separate so that the caller can let all ranks
/// agree on the outcome of each; none of them blocks on a rank that did not
/// take the step before.
class RankLink : public PeerWatch {
 public:
  /// The control block; the staging areas follow it in the same mapping.
  [[nodiscard]] virtual Mapping& control_memory() = 0;

  /// Makes this rank's segment, where it has one, and hands it over.
  /// Throws CommError.
  virtual void offer(const SegmentRequest& request) = 0;
  /// Rank 0 passes all segments to all ranks.
  virtual void relay(const SegmentRequest& request) = 0;
  /// Maps the segments, in the order of their ranks. Throws CommError.
  virtual std::vector<std::shared_ptr<Mapping>> collect(
      const SegmentRequest& request) = 0;
  /// Drops what offer() kept; all ranks have collected.
  virtual void settle() = 0;
};

[[nodiscard]] constexpr std::int64_t staging_offset(int world_size, int rank) {
  const std::int64_t control = control_block_bytes(world_size);
  return (control + 4095) / 4096 * 4096 + rank * 2 * kStageBytes;
}
[[nodiscard]] constexpr std::int64_t control_memory_bytes(int world_size) {
  return staging_offset(world_size, world_size);
}

/// Meets the other processes of the group under options.name.
/// Throws CommError that lists the ranks missing when the timeout has passed.
std::unique_ptr<RankLink> link_processes(const ShmOptions& options);

/// Links for ranks that are threads of this process.
std::vector<std::unique_ptr<RankLink>> link_threads(int world_size);

}  // namespace accordion::detail
