// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/planned_schedule.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "accordion/comm/device_mesh.h"
#include "accordion/comm/local_meshes.h"
#include "accordion/fsdp/controls.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/train/config_options.h"
#include "accordion/train/training_model.h"
#include "tests/fsdp/rank_threads.h"
#include "tests/train/train_ranks.h"

namespace accordion {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Case {
  std::vector<std::string> keys = {};
  Microbatch microbatch = Microbatch::Only;
};

/// Runs the passes of a step up to the one in question; only then may the
/// module be asked, which ends what passes hand on to each other.
void run_passes(TrainingModel& training, Microbatch microbatch) {
  std::vector<bool> is_last = {true};
  if (microbatch == Microbatch::First) {
    is_last = {false};
  } else if (microbatch == Microbatch::Middle) {
    is_last = {false, false};
  } else if (microbatch == Microbatch::Last) {
    is_last = {false, true};
  }
  for (const bool last : is_last) {
    Batch batch;
    batch.inputs.assign(128, 65);
    batch.targets.assign(128, 66);
    set_is_last_backward(training.module(), last);
    training.loss(batch, 128.0).loss.backward();
  }
}

class PlannedSchedule : public ::testing::TestWithParam<Case> {};

// What was planned from shapes alone is what a rank then does.
TEST_P(PlannedSchedule, IsWhatTheStepsFollow) {
  std::vector<std::string> keys = testing::parity_keys("tiny-gqa");
  keys.insert(keys.end(), GetParam().keys.begin(), GetParam().keys.end());
  const TrainConfig config = parse_config("", "test.toml", keys);
  const LlamaConfig model = open_model_config(config);
  const Rendezvous rendezvous{.world_size = 4, .local_world_size = 4};
  const auto axes = mesh_axes(config, rendezvous);
  const DeviceMesh mesh =
      DeviceMesh::connect(rendezvous, {.backend = "fake", .axes = axes});
  TrainingModel training(model, config, mesh);
  if (config.memory.optimizer_in_backward) {
    set_unit_step(training.module(), [](const CompleteUnit&) {});
  }
  run_passes(training, GetParam().microbatch);
  const StepSchedule planned =
      planned_schedule(model, fsdp_options(config), axes,
                       /*shares_memory=*/false, GetParam().microbatch);
  const StepSchedule followed = step_schedule(training.module());
  EXPECT_EQ(to_table(planned), to_table(followed));
  EXPECT_EQ(planned, followed);
}

INSTANTIATE_TEST_SUITE_P(
    Plan, PlannedSchedule,
    ::testing::Values(
        Case{}, Case{{"fsdp.prefetch=2", "fsdp.param_dtype=bf16"}},
        Case{{"fsdp.reshard_after_forward=false"}},
        Case{{"fsdp.prefetch=4", "fsdp.prefetch_bytes=500000"}},
        Case{{"fsdp.min_shard_numel=1000", "fsdp.param_dtype=bf16"}},
        Case{{"fsdp.reshard_to_ranks=2"}}, Case{{"fsdp.strategy=no_shard"}},
        Case{{"fsdp.strategy=no_shard", "fsdp.param_dtype=bf16"}},
        Case{{"fsdp.strategy=shard_grad_op"}},
        Case{{"fsdp.strategy=shard_optimizer"}, Microbatch::First},
        Case{{"fsdp.strategy=shard_optimizer", "fsdp.param_dtype=bf16"},
             Microbatch::Middle},
        Case{{"fsdp.strategy=shard_optimizer"}, Microbatch::Last},
        Case{{"memory.optimizer_in_backward=true"}},
        Case{{"memory.optimizer_in_backward=true", "fsdp.strategy=hybrid",
              "fsdp.param_dtype=bf16"}},
        Case{{"memory.optimizer_in_backward=true", "fsdp.strategy=no_shard"}},
        Case{{"memory.offload=gradients", "checkpoint.async=false"}},
        Case{{"memory.offload=parameters", "checkpoint.async=false",
              "fsdp.strategy=no_shard"}},
        Case{{"memory.offload=parameters", "checkpoint.async=false",
              "fsdp.strategy=shard_optimizer"},
             Microbatch::First},
        Case{{"memory.offload=parameters", "checkpoint.async=false",
              "fsdp.min_shard_numel=1000", "fsdp.param_dtype=bf16"}},
        Case{{"memory.offload=gradients", "checkpoint.async=false",
              "fsdp.strategy=hybrid", "fsdp.accumulation=deferred_all_reduce"},
             Microbatch::First},
        Case{{"fsdp.strategy=hybrid"}},
        Case{{"fsdp.strategy=hybrid", "fsdp.accumulation=deferred_all_reduce"},
             Microbatch::First},
        Case{{"fsdp.strategy=hybrid", "fsdp.accumulation=unsharded",
              "fsdp.keep_parameters=true"},
             Microbatch::Last}));

// The same of ranks that share memory, and gather in place what they may.
TEST(PlannedSchedule, IsWhatRanksThatShareMemoryFollow) {
  const std::vector<Case> cases = {
      {},
      {{"fsdp.param_dtype=bf16"}},
      {{"fsdp.param_dtype=bf16", "fsdp.copies_in_place=false"}},
      {{"fsdp.strategy=shard_grad_op", "fsdp.min_shard_numel=1000"}},
      {{"fsdp.reshard_to_ranks=2"}},
      {{"fsdp.strategy=no_shard"}},
      {{"fsdp.strategy=hybrid"}},
      {{"fsdp.strategy=shard_optimizer"}, Microbatch::Middle},
      {{"memory.offload=gradients", "checkpoint.async=false"}},
      {{"memory.offload=parameters", "checkpoint.async=false"}}};
  int in_place = 0;
  for (const Case& one : cases) {
    SCOPED_TRACE(::testing::PrintToString(one.keys));
    const TrainConfig config =
        parse_config("", "test.toml",
                     testing::with(testing::parity_keys("tiny-gqa"), one.keys));
    const LlamaConfig model = open_model_config(config);
    const auto axes =
        mesh_axes(config, {.world_size = 4, .local_world_size = 4});
    const StepSchedule planned =
        planned_schedule(model, fsdp_options(config), axes,
                         /*shares_memory=*/true, one.microbatch);
    testing::on_meshes(make_local_meshes(axes, std::chrono::seconds(30)),
                       [&](const DeviceMesh& mesh) {
                         TrainingModel training(model, config, mesh);
                         run_passes(training, one.microbatch);
                         EXPECT_EQ(to_table(planned),
                                   to_table(step_schedule(training.module())));
                       });
    in_place += planned.units.front().in_place ? 1 : 0;
  }
  EXPECT_EQ(in_place, 6) << "of shards or copies, cut, in memory";
}

std::vector<MeshAxis> ranks(int count) {
  return {{.name = "shard", .size = count}};
}

TEST(ScheduleTotals, CountWhatTheScheduleHolds) {
  const LlamaConfig model =
      LlamaConfig::from_file(testing::fixture("tiny.json"));
  // Four layers and the root, each reduced once. The root is unsharded once, as
  // it is kept, and so is the last layer, which backward needs at once.
  const std::string totals =
      schedule_totals(planned_schedule(model, {}, ranks(2), false));
  EXPECT_THAT(totals, HasSubstr("5 units; a pass unshards 8 times"));
  EXPECT_THAT(totals, HasSubstr("reduces 5 times"));
  EXPECT_THAT(totals, Not(HasSubstr("replicas")));
  EXPECT_THAT(totals, HasSubstr("of parameters are unsharded at a time"));
  EXPECT_THAT(schedule_totals(planned_schedule(model, {}, ranks(2), true)),
              HasSubstr("are the ranks' shards, in place"));
}

TEST(ScheduleTotals, NameTheAllReduceOverReplicas) {
  const LlamaConfig model =
      LlamaConfig::from_file(testing::fixture("tiny.json"));
  const std::vector<MeshAxis> axes = {{.name = "replicate", .size = 2},
                                      {.name = "shard", .size = 2}};
  EXPECT_THAT(schedule_totals(planned_schedule(model, {}, axes, false)),
              HasSubstr("all-reduces 5 times over replicas"));
}

}  // namespace
}  // namespace accordion
