// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "accordion/plan/unit_times.h"
#include "tests/plan/small_request.h"

namespace accordion::plan {
namespace {

using testing::small_request;

double peak(const PlanRequest& request) {
  return make_plan(request).memory.highest().total();
}

double step(const PlanRequest& request) {
  return make_plan(request).time.step_s;
}

/// Both grow strictly from each value of `field` to the next.
template <typename Set>
void expect_grows(const Set& set, std::initializer_list<int> values) {
  double memory = 0.0;
  double seconds = 0.0;
  for (const int value : values) {
    PlanRequest request = small_request();
    set(request, value);
    EXPECT_GT(peak(request), memory) << value;
    EXPECT_GT(step(request), seconds) << value;
    memory = peak(request);
    seconds = step(request);
  }
}

TEST(PlanProperty, GrowsWithTheBatch) {
  expect_grows([](auto& r, int v) { r.training.micro_batch = v; },
               {1, 2, 3, 4, 8, 16});
}

TEST(PlanProperty, GrowsWithTheSequence) {
  expect_grows([](auto& r, int v) { r.training.seq_len = v; },
               {512, 1024, 2048, 4096, 32768});
}

TEST(PlanProperty, GrowsWithTheModel) {
  expect_grows([](auto& r, int v) { r.model.num_layers = v; },
               {1, 2, 16, 32, 80});
  expect_grows([](auto& r, int v) { r.model.vocab_size = v; },
               {1000, 32000, 128256});
  expect_grows([](auto& r, int v) { r.model.intermediate_size = v; },
               {4096, 11008, 16384});
}

TEST(PlanProperty, MicrobatchesTakeTimeAndNoActivations) {
  PlanRequest request = small_request();
  const double once = step(request);
  request.training.grad_accum = 4;
  EXPECT_GT(step(request), 3.0 * once);
  EXPECT_LT(step(request), 4.0 * once);
  const MemoryPlan memory = make_plan(request).memory;
  request.training.grad_accum = 8;
  EXPECT_DOUBLE_EQ(make_plan(request).memory.highest().activations,
                   memory.highest().activations);
}

TEST(PlanProperty, ShardedStateFallsAsOneByN) {
  const Training training;
  const double params = 6e9;
  Strategy strategy;
  const double whole = state_memory(params, strategy, training).total();
  for (const int ranks : {2, 3, 8, 64, 1000}) {
    strategy.dp_shard = ranks;
    EXPECT_NEAR(state_memory(params, strategy, training).total(), whole / ranks,
                1.0);
  }
}

TEST(PlanProperty, StagesOfZeroHoldLessAndLess) {
  Training training;
  training.precision = {.parameter_bytes = 2,
                        .master_copy = true,
                        .gather_bytes = 2,
                        .gradient_bytes = 2,
                        .reduce_bytes = 2};
  Strategy strategy;
  strategy.dp_shard = 8;
  double previous = 1e300;
  for (const Sharding sharding :
       {Sharding::NoShard, Sharding::ShardOptimizer, Sharding::DeepSpeedZero2,
        Sharding::FullShard}) {
    strategy.sharding = sharding;
    const double held = state_memory(7e9, strategy, training).total();
    EXPECT_LT(held, previous) << to_string(sharding);
    previous = held;
  }
}

TEST(PlanProperty, Zero2OfFsdp2HoldsUnitsButSendsLess) {
  PlanRequest request = small_request();
  const Plan full = make_plan(request);
  request.strategy.sharding = Sharding::ShardGradOp;
  const Plan kept = make_plan(request);
  EXPECT_GT(kept.memory.highest().unsharded_parameters,
            full.memory.highest().unsharded_parameters);
  EXPECT_LT(kept.time.collective_bytes, full.time.collective_bytes);
}

TEST(PlanProperty, CpuHostsGatherInPlaceWhatIsComputedAsStored) {
  PlanRequest request = small_request();
  request.cluster.gpu.name = std::string(Cluster::kCpuName);
  request.training.precision = {.compute = ComputeType::Fp32,
                                .gather_bytes = 4};
  const auto unsharded = [](const PlanRequest& asked) {
    return plan_memory(asked).highest().unsharded_parameters;
  };
  for (const Sharding sharding :
       {Sharding::FullShard, Sharding::ShardGradOp, Sharding::ShardOptimizer}) {
    request.strategy.sharding = sharding;
    EXPECT_EQ(unsharded(request), 0.0) << to_string(sharding);
    PlanRequest other = request;
    other.training.precision.gather_bytes = 2;
    EXPECT_NEAR(unsharded(other),
                params_of_rank(other) * 2.0 / other.strategy.shard_ranks(), 1.0)
        << "its part of the copy";
    const double part = unsharded(other);
    other.stack.copies_in_place = false;
    EXPECT_GT(unsharded(other), 0.0) << "cast";
    EXPECT_NE(unsharded(other), part);
    other = request;
    other.strategy.secondary_shard = 4;
    EXPECT_GT(unsharded(other), 0.0) << "a copy of neighbours";
    other = request;
    other.cluster.gpus_per_host = 4;
    other.cluster.num_hosts = 2;
    EXPECT_GT(unsharded(other), 0.0) << "over hosts";
    other = request;
    other.stack = find_stack("torchtitan");
    EXPECT_GT(unsharded(other), 0.0) << "other software";
    other = request;
    other.cluster = small_request().cluster;
    EXPECT_GT(unsharded(other), 0.0) << "devices";
  }
}

TEST(PlanProperty, OneRankCommunicatesNothing) {
  for (const Sharding sharding :
       {Sharding::NoShard, Sharding::ShardOptimizer, Sharding::ShardGradOp,
        Sharding::DeepSpeedZero2, Sharding::FullShard}) {
    PlanRequest request = small_request("1xH100");
    request.strategy.sharding = sharding;
    const TimePlan time = make_plan(request).time;
    EXPECT_EQ(time.num_collectives, 0.0) << to_string(sharding);
    EXPECT_EQ(time.collective_bytes, 0.0) << to_string(sharding);
    EXPECT_EQ(time.exposed_s(), 0.0) << to_string(sharding);
    EXPECT_EQ(time.straggler_s, 0.0) << to_string(sharding);
  }
}

TEST(PlanProperty, HybridGathersInsideAndReducesAcross) {
  PlanRequest request = small_request("16x8xH100-Ethernet-25");
  request.training.precision.reduce_bytes = 2;
  const double flat = step(request);
  request.strategy.dp_shard = 8;
  request.strategy.dp_replicate = 16;
  EXPECT_LT(step(request), flat);
  EXPECT_GT(make_plan(request).memory.highest().sharded_parameters,
            make_plan(small_request("16x8xH100"))
                .memory.highest()
                .sharded_parameters);
}

TEST(PlanProperty, SecondCopyOnAHostSparesTheNetwork) {
  PlanRequest request = small_request("16x8xH100-Ethernet-25");
  const double flat = step(request);
  const double held = peak(request);
  request.strategy.secondary_shard = 8;
  EXPECT_LT(step(request), flat);
  EXPECT_GT(peak(request), held);
}

TEST(PlanProperty, CheckpointingTradesTimeForMemory) {
  PlanRequest request = small_request();
  request.training.micro_batch = 8;
  double memory = 1e300;
  double seconds = 0.0;
  for (const Checkpointing checkpointing :
       {Checkpointing::None, Checkpointing::Selective, Checkpointing::Full}) {
    request.training.checkpointing = checkpointing;
    EXPECT_LT(peak(request), memory);
    EXPECT_GT(step(request), seconds);
    memory = peak(request);
    seconds = step(request);
  }
}

TEST(PlanProperty, OffloadMovesStateToTheHost) {
  PlanRequest request = small_request();
  const Plan on_device = make_plan(request);
  request.strategy.offload = {.parameters = OffloadTo::Host,
                              .optimizer = OffloadTo::Host};
  const Plan offloaded = make_plan(request);
  EXPECT_LT(offloaded.memory.highest().total(),
            on_device.memory.highest().total());
  EXPECT_GT(offloaded.memory.host_bytes, 0.0);
  EXPECT_GT(offloaded.time.step_s, on_device.time.step_s);
}

TEST(PlanProperty, WhatIsOffloadedIsElsewhere) {
  PlanRequest request = small_request();
  request.training.precision = {.parameter_bytes = 2, .master_copy = true};
  const double held = state_memory(request).total();
  for (const Offload& offload :
       {Offload{.parameters = OffloadTo::None, .optimizer = OffloadTo::Host},
        Offload{.parameters = OffloadTo::Disk},
        Offload{.parameters = OffloadTo::Disk, .optimizer = OffloadTo::Host}}) {
    request.strategy.offload = offload;
    const MemoryPlan memory = make_plan(request).memory;
    EXPECT_NEAR(
        state_memory(request).total() + memory.host_bytes + memory.disk_bytes,
        held, 1.0);
  }
}

TEST(PlanProperty, PartsOfAStepAddUp) {
  for (const char* const cluster : {"1xH100", "8xH100", "16x8xA100-IB"}) {
    PlanRequest request = small_request(cluster);
    request.training.grad_accum = 3;
    const TimePlan time = make_plan(request).time;
    EXPECT_NEAR(time.step_s,
                time.forward_s + time.backward_s + time.optimizer_s +
                    time.exposed_gather_s + time.exposed_reduce_s +
                    time.pipeline_bubble_s + time.offload_s + time.straggler_s,
                1e-9 * time.step_s);
  }
}

TEST(PlanProperty, TensorContextAndPipelineCutWhatARankHolds) {
  PlanRequest request = small_request("2x8xH100");
  request.training.grad_accum = 8;
  request.strategy.dp_shard = 2;
  for (int Strategy::*const axis :
       {&Strategy::tensor, &Strategy::context, &Strategy::pipeline}) {
    PlanRequest cut = request;
    cut.strategy.*axis = 8;
    cut.strategy.stages_per_rank = 1;
    const Plan plan = make_plan(cut);
    EXPECT_LT(plan.memory.highest().activations + plan.memory.highest().logits,
              make_plan(small_request()).memory.highest().total());
    EXPECT_GT(plan.time.step_s, 0.0);
  }
}

TEST(PlanProperty, BubbleIsThatOfItsStages) {
  PlanRequest request = small_request("8xH100");
  request.strategy.dp_shard = 1;
  request.strategy.pipeline = 8;
  request.training.grad_accum = 8;
  const TimePlan time = make_plan(request).time;
  // 7 of 15 parts wait.
  EXPECT_NEAR(time.pipeline_bubble_s / (time.forward_s + time.backward_s),
              7.0 / 8.0, 0.05);
}

}  // namespace
}  // namespace accordion::plan
