// SPDX-License-Identifier: BSD-3-Clause
// What the ranks of two_hosts.sh do. Started with the variables that torchrun
// sets, two ranks in each of two network namespaces.
#include <gtest/gtest.h>

#include <cstdio>

#include "accordion/comm/device_mesh.h"
#include "tests/comm/collective_checks.h"
#include "tests/support/rank_harness.h"

namespace accordion::testing {
namespace {

using Clock = std::chrono::steady_clock;

DeviceMesh two_by_two(std::chrono::milliseconds timeout) {
  return DeviceMesh::from_environment(
      {.axes = {{"replicate", 2}, {"shard", 2}}, .timeout = timeout});
}

const RankProgram kCollectives("collectives", [](const RankContext&) {
  const DeviceMesh mesh = two_by_two(std::chrono::seconds(30));
  EXPECT_EQ(mesh.communicator("shard").backend(), "shm");
  EXPECT_EQ(mesh.communicator("replicate").backend(), "gloo");
  EXPECT_EQ(mesh.world().backend(), "hierarchical");
  check_sums_repeat(mesh.communicator("shard"), Memory::CommBuffers);
  check_sums_repeat(mesh.communicator("replicate"), Memory::CommBuffers);
  check_sums_repeat(mesh.world(), Memory::CommBuffers, 2);
  check_collectives(mesh.world(), Memory::CommBuffers);
});

// All-reduces until the network fails, and prints how that showed.
const RankProgram kUntilCut("until_cut", [](const RankContext& c) {
  const DeviceMesh mesh = two_by_two(std::chrono::milliseconds(3000));
  std::vector<float> values(1 << 20, 1.0f);
  const ReducePart part = {values.data(),
                           DType::Float32,
                           values.data(),
                           DType::Float32,
                           DType::Float32,
                           static_cast<std::int64_t>(values.size()),
                           0.25};
  auto last = Clock::now();
  try {
    for (int step = 0;; ++step) {
      mesh.world().all_reduce({&part, 1}, nullptr, "layers.3").wait();
      EXPECT_EQ(values.back(), 1.0f);
      last = Clock::now();
      if (step == 5) {
        std::printf("rank %d is under way\n", c.rank);
        std::fflush(stdout);
      }
    }
  } catch (const CommError& error) {
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(
        Clock::now() - last);
    EXPECT_LT(waited.count(), 5000);
    std::printf("rank %d after %d ms: %s\n", c.rank,
                static_cast<int>(waited.count()), error.what());
    std::fflush(stdout);
  }
});

}  // namespace
}  // namespace accordion::testing
