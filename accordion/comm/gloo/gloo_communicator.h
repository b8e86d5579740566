// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "accordion/comm/communicator.h"
#include "accordion/comm/gloo/gloo_store.h"

namespace accordion {

struct GlooOptions {
  int rank = 0;  ///< within the group
  int world_size = 1;
  std::string name;  ///< of the group, alike on all its ranks
  /// Longest wait for a peer, at the start and in each operation.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  /// Ranks compare what they call before each collective, so that a
  /// disagreement is an error that names both sides. Costs a round trip a call.
  bool debug_calls = false;
  /// What errors call the ranks, by rank; empty: 0, 1, …
  std::vector<int> members = {};
};

/// Collectives between hosts, over TCP.
///
/// Pieces travel in their wire dtype straight from and to the caller's memory,
/// from start to wait() in the background, and are summed by the same code as
/// in shared memory: results are the same bit for bit.
///
/// Comm   an all-gather or reduce-scatter sends (W - 1) / W of the full tensor,
///        an all-reduce twice that
/// Throws CommError when peers are late
std::unique_ptr<Communicator> connect_gloo(const GlooStore& store,
                                           const GlooOptions& options);

}  // namespace accordion
