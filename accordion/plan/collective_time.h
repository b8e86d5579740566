// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "accordion/plan/cluster.h"
#include "accordion/plan/strategy.h"

namespace accordion::plan {

/// How the ranks of a collective lie on hosts.
struct GroupShape {
  int ranks = 1;
  int ranks_per_host = 1;

  [[nodiscard]] int hosts() const {
    return (ranks + ranks_per_host - 1) / ranks_per_host;
  }
};

// Tensor ranks are neighbours, then context, shard and replicate ranks, and
// stages are farthest from each other.
[[nodiscard]] GroupShape tensor_group(const Strategy& s, const Cluster& c);
[[nodiscard]] GroupShape context_group(const Strategy& s, const Cluster& c);
[[nodiscard]] GroupShape shard_group(const Strategy& s, const Cluster& c);
[[nodiscard]] GroupShape replicate_group(const Strategy& s, const Cluster& c);
/// The ranks of a host that hpZ's second copy is cut over.
[[nodiscard]] GroupShape secondary_group(const Strategy& s, const Cluster& c);

/// Bytes/s of a rank in a ring through the group: the slower of a link inside
/// a host and of the host's network, which all its ranks in the group share
/// (each ring enters and leaves a host once, by another rank's port).
[[nodiscard]] double ring_rate(const GroupShape& group, const Cluster& cluster);

/// Seconds of an all-gather into `bytes`, or a reduce-scatter of them: a ring
/// of ranks - 1 steps, bytes / ranks a step; 0 for one rank.
[[nodiscard]] double ring_time(double bytes, const GroupShape& group,
                               const Cluster& cluster);

/// Of an all-gather of parameters into `bytes` of `wire`, as long as a
/// calibration of as many ranks of one host found, else ring_time.
[[nodiscard]] double gather_time(double bytes, ComputeType wire,
                                 const GroupShape& group,
                                 const Cluster& cluster);

/// The same of a reduce-scatter; else ring_time where links may reduce at a
/// rate of their own.
[[nodiscard]] double reduce_time(double bytes, ComputeType wire,
                                 const GroupShape& group,
                                 const Cluster& cluster);

/// Of an all-reduce of `bytes`, as long as a calibration found, else two rings,
/// or a tree over hosts, up and down, whichever is faster; 0 for one rank.
[[nodiscard]] double all_reduce_time(double bytes, ComputeType wire,
                                     const GroupShape& group,
                                     const Cluster& cluster);

/// Of sending `bytes` to a rank `distance` ranks away.
[[nodiscard]] double send_time(double bytes, int distance,
                               const Cluster& cluster);

}  // namespace accordion::plan
