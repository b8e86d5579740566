// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "accordion/comm/hierarchical/host_lane.h"

// What a collective over several hosts is made of. Each of these is called on
// a HostLane and returns when the collective is done.
//
// H hosts of L ranks: the piece of rank h * L + l belongs to place l of host h,
// so the pieces of one host are one block of `full`.
namespace accordion::detail {

/// Between hosts, a rank gathers the pieces of its own place; on each host, the
/// ranks then gather those, block by block.
struct GatherPhases {
  std::vector<GatherPart> parts;
  CommBuffer* buffer;  ///< of host.local, or null
  std::string label;
  void operator()(HostContext& host) const;
};

/// On each host, rank l sums the pieces of place l of every block; between
/// hosts, those sums are reduced.
struct ReduceScatterPhases {
  std::vector<ReducePart> parts;
  CommBuffer* buffer;
  std::string label;
  void operator()(HostContext& host) const;
};

/// On each host, rank l sums the l-th of L equal ranges; between hosts, those
/// sums are all-reduced; on each host, the results are gathered. Elements left
/// over by the division are summed by every rank.
struct AllReducePhases {
  std::vector<ReducePart> parts;
  CommBuffer* buffer;
  std::string label;
  void operator()(HostContext& host) const;
};

}  // namespace accordion::detail
