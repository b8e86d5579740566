// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/rank_memory.h"

#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "accordion/comm/shm/shm_communicator.h"

namespace accordion {
namespace {

/// What rank `rank` held: each number encodes where it belongs.
RankMemory made_up(int rank) {
  RankMemory memory{.outside_mib = 0.5 + rank};
  std::int64_t next = 1000 * (rank + 1);
  for (MemoryByKind& phase : memory.peak.by_phase) {
    for (const MemoryKind& kind : kMemoryKinds) {
      phase.*kind.bytes = ++next;
    }
  }
  return memory;
}

TEST(RankMemory, EveryRankLearnsThatOfEachInOrder) {
  constexpr int kRanks = 3;
  auto group = make_local_shm_group(kRanks, std::chrono::seconds(5));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      Communicator& world = *group[static_cast<std::size_t>(rank)];
      const auto memory = memory_of_ranks(world, made_up(rank));
      ASSERT_EQ(memory.size(), static_cast<std::size_t>(kRanks));
      for (int other = 0; other < kRanks; ++other) {
        const RankMemory& got = memory[static_cast<std::size_t>(other)];
        EXPECT_EQ(got.outside_mib, 0.5 + other);
        EXPECT_EQ(got.peak.by_phase, made_up(other).peak.by_phase);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace
}  // namespace accordion
