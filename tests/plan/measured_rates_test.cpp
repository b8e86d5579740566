// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/measured_rates.h"

#include <vector>

#include <gtest/gtest.h>

#include "accordion/plan/collective_time.h"
#include "accordion/plan/operator_time.h"
#include "accordion/plan/plan.h"
#include "accordion/plan/unit_times.h"

namespace accordion::plan {
namespace {

MeasuredRate product(double rows, double inner, double columns, double per_s) {
  return {.kind = MeasuredKind::Product,
          .compute = ComputeType::Bf16,
          .sizes = {rows, inner, columns},
          .per_s = per_s};
}

PlanRequest request_on(const Cluster& cluster) {
  PlanRequest request;
  request.model.num_layers = 2;
  request.model.hidden_size = 256;
  request.model.num_heads = request.model.num_kv_heads = 4;
  request.model.head_dim = 64;
  request.model.intermediate_size = 512;
  request.model.vocab_size = 256;
  request.cluster = cluster;
  request.stack = find_stack("accordion");
  return request;
}

TEST(MeasuredRates, NearSizesDecide) {
  const std::vector<MeasuredRate> rates = {product(64, 64, 64, 1e10),
                                           product(1024, 1024, 1024, 1e12)};
  const auto at = [&](double size) {
    return *rate_at(rates, MeasuredKind::Product, ComputeType::Bf16,
                    {size, size, size});
  };
  EXPECT_NEAR(at(64), 1e10, 1e7);
  EXPECT_NEAR(at(1024), 1e12, 1e9);
  EXPECT_NEAR(at(256), 1e11, 1e7);  // half way
  EXPECT_LT(at(128), at(512));
}

TEST(MeasuredRates, SizesOfAProductHaveNoOrder) {
  const std::vector<MeasuredRate> rates = {product(64, 256, 1024, 1e10),
                                           product(64, 64, 64, 1e9)};
  EXPECT_EQ(
      rate_at(rates, MeasuredKind::Product, ComputeType::Bf16, {1024, 64, 256}),
      rate_at(rates, MeasuredKind::Product, ComputeType::Bf16,
              {64, 256, 1024}));
}

TEST(MeasuredRates, OtherKindsAndTypesAreNoMeasurement) {
  const std::vector<MeasuredRate> rates = {product(64, 64, 64, 1e10)};
  EXPECT_FALSE(
      rate_at(rates, MeasuredKind::Attention, ComputeType::Bf16, {64, 64, 1}));
  EXPECT_FALSE(
      rate_at(rates, MeasuredKind::Product, ComputeType::Fp32, {64, 64, 64}));
}

TEST(MeasuredRates, StandInThePlaceOfADatasheet) {
  OperatorMachine machine{.gpu = find_gpu("A100-80GB"),
                          .stack = find_stack("accordion")};
  const Operator op = {.kind = OperatorKind::Product,
                       .flops = 2.0 * 64 * 64 * 64,
                       .rows = 64,
                       .inner = 64,
                       .columns = 64};
  const double before = operator_time(op, machine);
  machine.gpu.measured = {product(64, 64, 64, 1e10)};
  EXPECT_DOUBLE_EQ(operator_time(op, machine), op.flops / 1e10);
  EXPECT_NE(operator_time(op, machine), before);
}

TEST(MeasuredRates, ReductionsMayHaveARateOfTheirOwn) {
  Cluster cluster = parse_cluster("8xA100");
  const GroupShape group{.ranks = 8, .ranks_per_host = 8};
  EXPECT_DOUBLE_EQ(reduce_time(1e9, ComputeType::Fp32, group, cluster),
                   ring_time(1e9, group, cluster));
  cluster.inside.reduce_bytes_per_s = cluster.inside.bytes_per_s / 2.0;
  EXPECT_GT(reduce_time(1e9, ComputeType::Fp32, group, cluster),
            1.9 * ring_time(1e9, group, cluster));
}

TEST(MeasuredRates, CollectivesOfAllRanksOfAHostHaveThem) {
  Cluster cluster = parse_cluster("8xA100");
  const double wire = 1e9;
  cluster.gpu.measured = {{.kind = MeasuredKind::Gather,
                           .compute = ComputeType::Bf16,
                           .sizes = {wire, 1.0, 1.0},
                           .per_s = 1e8},
                          {.kind = MeasuredKind::Reduce,
                           .compute = ComputeType::Fp32,
                           .sizes = {wire, 1.0, 1.0},
                           .per_s = 5e7},
                          {.kind = MeasuredKind::AllReduce,
                           .compute = ComputeType::Fp32,
                           .sizes = {wire, 1.0, 1.0},
                           .per_s = 2.5e7}};
  const GroupShape all{.ranks = 8, .ranks_per_host = 8};
  const GroupShape half{.ranks = 4, .ranks_per_host = 4};
  EXPECT_NEAR(gather_time(wire, ComputeType::Bf16, all, cluster), 10.0, 1e-6);
  EXPECT_NEAR(reduce_time(wire, ComputeType::Fp32, all, cluster), 20.0, 1e-6);
  EXPECT_NEAR(all_reduce_time(wire, ComputeType::Fp32, all, cluster), 40.0,
              1e-6);
  EXPECT_DOUBLE_EQ(gather_time(wire, ComputeType::Fp32, all, cluster),
                   ring_time(wire, all, cluster));
  EXPECT_DOUBLE_EQ(gather_time(wire, ComputeType::Bf16, half, cluster),
                   ring_time(wire, half, cluster));
}

TEST(MeasuredRates, RanksThatHoldAllCastAndCopyTheirSlots) {
  const double bandwidth = 1e10;
  Cluster cluster = parse_cluster("2xA100");
  cluster.gpu.memory_bytes_per_s = bandwidth;
  cluster.gpu.memory_efficiency = 1.0;
  PlanRequest request = request_on(cluster);
  request.strategy.dp_replicate = 2;
  const auto layer = [&] { return times_of(request)[1]; };
  const double params = layer_params_of_rank(request);
  request.stack.lone_ranks_use_slots = false;
  const UnitTimes without = layer();
  request.stack.lone_ranks_use_slots = true;
  const UnitTimes with = layer();
  const double cast = params * (4.0 + 2.0) / bandwidth;
  const double gradients = params * (4.0 + 4.0) / bandwidth;
  EXPECT_NEAR(with.forward - without.forward, cast, 1e-9);
  EXPECT_NEAR(with.backward - without.backward, cast + gradients, 1e-9);
  request.cluster.gpu.name = Cluster::kCpuName;  // reads what it writes
  EXPECT_NEAR(layer().forward - without.forward, params * 8.0 / bandwidth,
              1e-9);
  request.strategy.sharding = Sharding::NoShard;
  EXPECT_NEAR(layer().backward, without.backward, 1e-9);
}

TEST(MeasuredRates, StepsSayHowFastOperatorsPassInThem) {
  PlanRequest request = request_on(parse_cluster("1xA100"));
  request.stack.lone_ranks_use_slots = false;
  const auto compute = [&] {
    double seconds = 0.0;
    for (const UnitTimes& unit : times_of(request)) {
      seconds +=
          unit.forward + unit.forward_end + unit.backward + unit.backward_end;
    }
    return seconds;
  };
  const double alone = compute();
  request.cluster.gpu.measured = {{.kind = MeasuredKind::Step,
                                   .compute = ComputeType::Bf16,
                                   .sizes = {4096, 2048, 1.0},
                                   .per_s = 0.5}};
  EXPECT_NEAR(compute() / alone, 2.0, 1e-9);
}

}  // namespace
}  // namespace accordion::plan
