// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string>
#include <vector>

#include "accordion/comm/mesh_grid.h"
#include "accordion/comm/rendezvous.h"

namespace accordion::detail {

/// How the ranks of a group lie on hosts.
enum class HostLayout {
  OneHost,   ///< all on one
  HostEach,  ///< each on a host of its own
  Blocks,    ///< consecutive ranks, equally many on each of several hosts
  Uneven,    ///< anything else
};

/// `host_of_rank` gives the host of each rank of the mesh, as a number.
[[nodiscard]] HostLayout layout_of(const RankGroup& group,
                                   std::span<const int> host_of_rank);

/// The hosts of the group's ranks, for messages: "ranks 0, 1 on one host, …".
[[nodiscard]] std::string describe_hosts(const RankGroup& group,
                                         std::span<const int> host_of_rank);

/// The two groups that a rank of a group in Blocks belongs to: the ranks of its
/// host, and those of the same place on every host. Their names belong to
/// `purpose`, so that a group can be split more than once.
struct HostSplit {
  RankGroup local;
  RankGroup between;
};
[[nodiscard]] HostSplit split_by_host(const RankGroup& group,
                                      std::span<const int> host_of_rank,
                                      std::string_view purpose);

/// Numbers equal texts alike, from 0 in the order of their first appearance.
[[nodiscard]] std::vector<int> number_hosts(
    std::span<const std::string> identities);

/// What processes on this host that can meet through shared memory have in
/// common and others have not: the running kernel and the network namespace,
/// to which the names of Unix sockets belong.
[[nodiscard]] std::string host_identity();

/// The same of a rank, whose rendezvous may name another host.
[[nodiscard]] std::string host_of(const Rendezvous& rendezvous);

}  // namespace accordion::detail
