// SPDX-License-Identifier: BSD-3-Clause
// One process plays one rank of thousands: what it calls is what the schedule
// of its pass says.
#include <chrono>
#include <iostream>

#include "accordion/fsdp/controls.h"
#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "tests/fsdp/models.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using Net = Unit<testing::UnitNet>;

constexpr int kBlocks = 24;

DeviceMesh fake_mesh(int rank, std::vector<MeshAxis> axes) {
  int world = 1;
  for (const MeshAxis& axis : axes) {
    world *= axis.size;
  }
  return DeviceMesh::connect({.rank = rank, .world_size = world},
                             {.backend = "fake", .axes = std::move(axes)});
}

std::int64_t actions_of(const StepSchedule& schedule, ActionKind kind) {
  return std::count_if(
      schedule.actions.begin(), schedule.actions.end(),
      [kind](const Action& action) { return action.kind == kind; });
}

struct Setting {
  std::string name;
  std::vector<MeshAxis> axes;
  FsdpOptions options;
};

class LargeWorld : public ::testing::TestWithParam<Setting> {};

TEST_P(LargeWorld, CallsWhatTheScheduleSays) {
  const Setting& setting = GetParam();
  const auto start = std::chrono::steady_clock::now();
  for (const int rank : {0, 1000, 4095}) {
    const DeviceMesh mesh = fake_mesh(rank, setting.axes);
    auto net = testing::seeded<Net>(kBlocks);
    fully_shard(net, mesh, setting.options);
    Communicator& shard = mesh.communicator("shard");
    for (int pass = 0; pass < 6; ++pass) {
      const bool last = pass % 3 == 2;
      const CommCounters before = shard.counters();
      set_is_last_backward(*net, last);
      net(testing::batch_of(pass, 2)).square().mean().backward();
      const CommCounters& after = shard.counters();
      if (pass < 3) {
        continue;  // recorded, or the first of its kind
      }
      const StepSchedule schedule = step_schedule(*net);
      ASSERT_FALSE(schedule.actions.empty());
      EXPECT_EQ(validate(schedule), "");
      EXPECT_EQ(after.calls_of(CommOp::AllGather) -
                    before.calls_of(CommOp::AllGather),
                actions_of(schedule, ActionKind::Unshard));
      EXPECT_EQ(after.calls_of(CommOp::ReduceScatter) -
                    before.calls_of(CommOp::ReduceScatter),
                actions_of(schedule, ActionKind::Reduce));
    }
  }
  std::cout << setting.name << ": "
            << std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                             start)
                   .count()
            << " s for 3 ranks\n";
}

INSTANTIATE_TEST_SUITE_P(
    All, LargeWorld,
    ::testing::Values(Setting{"full_shard", {{"shard", 4096}}, {}},
                      Setting{"shard_grad_op",
                              {{"shard", 4096}},
                              {.strategy = Strategy::ShardGradOp}},
                      Setting{"shard_optimizer",
                              {{"shard", 4096}},
                              {.strategy = Strategy::ShardOptimizer}},
                      Setting{"hybrid", {{"replicate", 512}, {"shard", 8}}, {}},
                      Setting{
                          "hybrid_deferred",
                          {{"replicate", 512}, {"shard", 8}},
                          {.accumulation = Accumulation::DeferredAllReduce}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace accordion
