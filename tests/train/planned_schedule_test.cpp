// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/planned_schedule.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "accordion/comm/device_mesh.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/train/config_options.h"
#include "accordion/train/training_model.h"
#include "tests/train/train_ranks.h"

namespace accordion {
namespace {

using ::testing::HasSubstr;

class PlannedSchedule
    : public ::testing::TestWithParam<std::vector<std::string>> {};

// What was planned from shapes alone is what a rank then does.
TEST_P(PlannedSchedule, IsWhatTheStepsFollow) {
  std::vector<std::string> keys = testing::parity_keys("tiny-gqa");
  keys.insert(keys.end(), GetParam().begin(), GetParam().end());
  const TrainConfig config = parse_config("", "test.toml", keys);
  const LlamaConfig model = open_model_config(config);
  const DeviceMesh mesh =
      DeviceMesh::connect({.world_size = 3}, {.backend = "fake"});
  TrainingModel training(model, config, mesh);
  Batch batch;
  batch.inputs.assign(128, 65);
  batch.targets.assign(128, 66);
  training.loss(batch, 128.0).loss.backward();
  const StepSchedule planned =
      planned_schedule(model, fsdp_options(config), mesh.world_size());
  EXPECT_EQ(to_table(planned), to_table(step_schedule(training.module())));
  EXPECT_EQ(planned, step_schedule(training.module()));
}

INSTANTIATE_TEST_SUITE_P(
    Plan, PlannedSchedule,
    ::testing::Values(
        std::vector<std::string>{},
        std::vector<std::string>{"fsdp.prefetch=2", "fsdp.param_dtype=bf16"},
        std::vector<std::string>{"fsdp.reshard_after_forward=false"},
        std::vector<std::string>{"fsdp.strategy=no_shard"},
        std::vector<std::string>{"fsdp.strategy=no_shard",
                                 "fsdp.param_dtype=bf16"}));

TEST(ScheduleTotals, CountWhatTheScheduleHolds) {
  const LlamaConfig model =
      LlamaConfig::from_file(testing::fixture("tiny.json"));
  // Four layers and the root, each reduced once. The root is unsharded once, as
  // it is kept, and so is the last layer, which backward needs at once.
  EXPECT_THAT(schedule_totals(planned_schedule(model, {}, 2)),
              HasSubstr("5 units; a step unshards 8 times"));
  EXPECT_THAT(schedule_totals(planned_schedule(model, {}, 2)),
              HasSubstr("reduces 5 times"));
}

}  // namespace
}  // namespace accordion
