// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <vector>

#include "accordion/comm/communicator.h"

namespace accordion {

/// Two communicators of one rank: among the ranks of its host, and among the
/// ranks of the same place on every host.
struct HostLink {
  std::unique_ptr<Communicator> local;
  std::unique_ptr<Communicator> between;
};

/// Joins the ranks of several hosts, each of which holds `local->world_size()`
/// consecutive ones: rank = between->rank() * local->world_size() +
/// local->rank().
///
/// What crosses the network is what each host needs once, spread over its
/// ranks: an all-gather brings a rank the pieces of its own place and shares
/// them on the host; a reduction sums on the host, and sends sums in fp32.
///
/// All-gathers go through `gathers`, everything else through `others`, each on
/// a thread of its own in the order of issue: so a collective runs in the
/// background from its start, and an all-gather may overtake a reduction.
/// Where one phase fails the ranks of the host are told at once.
///
/// `members` is what errors call the ranks, by rank; empty: 0, 1, …
///
/// Comm     per rank, of a full tensor of S bytes over H hosts of L ranks:
///          all-gather S (H - 1) / (H L) between hosts, reduce-scatter as much
///          in fp32, all-reduce twice that
/// Memory   all-gather and reduce-scatter keep S / L bytes (fp32 for sums) for
///          the largest call so far, an all-reduce about 2 S
/// Buffers  common and exported within a host
/// Throws   CommError when a phase waits longer than its communicator's timeout
std::unique_ptr<Communicator> make_hierarchical_communicator(
    HostLink gathers, HostLink others, std::vector<int> members = {});

}  // namespace accordion
