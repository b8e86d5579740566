// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "accordion/comm/communicator.h"
#include "accordion/schedule/memory_by_kind.h"

namespace accordion {

/// What a rank of a run held.
struct RankMemory {
  MemoryPeak peak = {};
  /// What its process holds besides (code, libraries, data, memory that malloc
  /// keeps): its PSS less what the kinds add up to.
  double outside_mib = 0.0;
};

/// That of each rank, in the order of ranks.
///
/// Comm  one all-reduce of some 30 doubles a rank
[[nodiscard]] std::vector<RankMemory> memory_of_ranks(Communicator& world,
                                                      const RankMemory& own);

}  // namespace accordion
