// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "tests/plan/expect_message.h"
#include "tests/plan/small_request.h"

namespace accordion::plan {
namespace {

using testing::expect_message;
using testing::small_request;

template <typename Change>
void expect_error(const Change& change,
                  std::initializer_list<const char*> parts) {
  PlanRequest request = small_request();
  change(request);
  expect_message([&] { make_plan(request); }, parts);
}

TEST(PlanError, SizesBelowOne) {
  expect_error([](auto& r) { r.training.micro_batch = 0; },
               {"micro_batch is 0", "nearest valid value is 1"});
  expect_error([](auto& r) { r.training.seq_len = -4; }, {"seq_len is -4"});
  expect_error([](auto& r) { r.training.grad_accum = 0; }, {"grad_accum is 0"});
  expect_error([](auto& r) { r.strategy.tensor = -1; }, {"tensor is -1"});
  expect_error([](auto& r) { r.strategy.prefetch = -1; }, {"prefetch is -1"});
  expect_error([](auto& r) { r.model.num_layers = 0; }, {"num_layers is 0"});
  expect_error([](auto& r) { r.training.checkpointed_share = 1.5; },
               {"checkpointed_share is 1.5", "nearest valid value is 1"});
}

TEST(PlanError, MeshThatIsNotTheCluster) {
  expect_error(
      [](auto& r) { r.strategy.dp_shard = 6; },
      {"is 6, but the cluster has 8 GPUs", "nearest valid dp_shard is 8"});
}

TEST(PlanError, HeadsThatDoNotDivide) {
  expect_error(
      [](auto& r) {
        r.cluster = parse_cluster("6xH100");
        r.strategy.dp_shard = 1;
        r.strategy.tensor = 6;
      },
      {"tensor is 6", "heads 32", "nearest valid value is 4"});
}

TEST(PlanError, MoreStagesThanLayers) {
  expect_error(
      [](auto& r) {
        r.cluster = parse_cluster("64xH100");
        r.strategy.dp_shard = 1;
        r.strategy.pipeline = 64;
      },
      {"pipeline 64", "32 layers", "nearest valid pipeline is 32"});
}

TEST(PlanError, SecondCopyThatDoesNotDivide) {
  expect_error([](auto& r) { r.strategy.secondary_shard = 3; },
               {"secondary_shard is 3", "nearest valid value is"});
}

TEST(PlanError, TypesThatTheDeviceDoesNotHave) {
  expect_error(
      [](auto& r) {
        r.cluster = parse_cluster("8xA100");
        r.training.precision.compute = ComputeType::Fp8;
      },
      {"fp8", "A100-80GB has no 8-bit", "bf16"});
  expect_error([](auto& r) { r.training.precision.gather_bytes = 3; },
               {"gather_bytes is 3", "1, 2 or 4"});
}

TEST(PlanError, NamesThatAreNotKnown) {
  expect_message([] { (void)find_stack("torchtitn"); },
                 {"'torchtitn'", "nearest is 'torchtitan'"});
  expect_message([] { (void)parse_sharding("zero4"); },
                 {"'zero4'", "nearest is 'zero"});
}

}  // namespace
}  // namespace accordion::plan
