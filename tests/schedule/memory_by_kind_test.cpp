// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/schedule/memory_by_kind.h"

#include <gtest/gtest.h>

namespace accordion {
namespace {

TEST(MemoryByKind, TotalIsTheSumOfAllKinds) {
  MemoryByKind memory;
  std::int64_t next = 1;
  for (const MemoryKind& kind : kMemoryKinds) {
    memory.*kind.bytes = next;
    next *= 2;
  }
  EXPECT_EQ(memory.total(), 127);
  EXPECT_EQ(sizeof(MemoryByKind), kMemoryKinds.size() * sizeof(std::int64_t))
      << "each field has a name";
}

TEST(MemoryByKind, TextListsWhatIsHeldInReadableUnits) {
  EXPECT_EQ(describe(MemoryByKind{}), "nothing");
  EXPECT_EQ(describe(MemoryByKind{.sharded_parameters = 3 << 20,
                                  .activations = 1536,
                                  .communication_buffers = 10}),
            "sharded parameters 3.0 MiB, activations 1.5 KiB, communication "
            "buffers 10 B");
  EXPECT_EQ(describe_bytes(8LL << 30), "8.00 GiB");
}

TEST(MemoryPeak, PhaseIsTheOneWithTheHighestTotal) {
  MemoryPeak peak;
  peak.add(MemoryPhase::Forward, {.gradients = 5, .activations = 10});
  peak.add(MemoryPhase::Forward, {.gradients = 9});  // less in all
  peak.add(MemoryPhase::Optimizer, {.optimizer = 12, .other = 4});
  EXPECT_EQ(peak.phase(), MemoryPhase::Optimizer);
  EXPECT_EQ(to_string(peak.phase()), "optimizer");
  EXPECT_EQ(peak.highest().total(), 16);
  EXPECT_EQ(peak.of(MemoryPhase::Forward).activations, 10);
  EXPECT_EQ(peak.of(MemoryPhase::Backward), MemoryByKind{});
  EXPECT_EQ(
      peak.each(),
      (MemoryByKind{
          .gradients = 5, .optimizer = 12, .activations = 10, .other = 4}));
}

}  // namespace
}  // namespace accordion
