// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/measured_rates.h"

#include <vector>

#include <gtest/gtest.h>

#include "accordion/plan/collective_time.h"
#include "accordion/plan/operator_time.h"

namespace accordion::plan {
namespace {

MeasuredRate product(double rows, double inner, double columns, double per_s) {
  return {.kind = MeasuredKind::Product,
          .compute = ComputeType::Bf16,
          .sizes = {rows, inner, columns},
          .per_s = per_s};
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
  EXPECT_DOUBLE_EQ(reduce_time(1e9, group, cluster),
                   ring_time(1e9, group, cluster));
  cluster.inside.reduce_bytes_per_s = cluster.inside.bytes_per_s / 2.0;
  EXPECT_GT(reduce_time(1e9, group, cluster),
            1.9 * ring_time(1e9, group, cluster));
}

}  // namespace
}  // namespace accordion::plan
