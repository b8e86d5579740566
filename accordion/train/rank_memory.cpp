// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/rank_memory.h"

#include <cstddef>

#include "accordion/train/rank_agreement.h"

namespace accordion {

std::vector<RankMemory> memory_of_ranks(Communicator& world,
                                        const RankMemory& own) {
  constexpr std::size_t kEach = 1 + kNumMemoryPhases * kMemoryKinds.size();
  const auto ranks = static_cast<std::size_t>(world.world_size());
  std::vector<double> values(ranks * kEach);
  double* mine = &values[static_cast<std::size_t>(world.rank()) * kEach];
  *mine++ = own.outside_mib;
  for (const MemoryByKind& phase : own.peak.by_phase) {
    for (const MemoryKind& kind : kMemoryKinds) {
      *mine++ = static_cast<double>(phase.*kind.bytes);
    }
  }
  values = sum_over_ranks(world, values, "peak memory");
  std::vector<RankMemory> result(ranks);
  const double* next = values.data();
  for (RankMemory& rank : result) {
    rank.outside_mib = *next++;
    for (MemoryByKind& phase : rank.peak.by_phase) {
      for (const MemoryKind& kind : kMemoryKinds) {
        phase.*kind.bytes = static_cast<std::int64_t>(*next++);
      }
    }
  }
  return result;
}

}  // namespace accordion
