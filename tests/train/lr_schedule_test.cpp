// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/lr_schedule.h"

#include <gtest/gtest.h>

namespace accordion {
namespace {

TEST(LrSchedule, ConstantStaysAtThePeakAfterWarmUp) {
  const LrSchedule schedule = {
      .decay = LrDecay::Constant, .peak = 2.0, .warmup_steps = 4};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 0), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 3), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 4), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 4000), 2.0);
}

TEST(LrSchedule, WithoutWarmUpStartsAtThePeak) {
  EXPECT_DOUBLE_EQ(learning_rate({.peak = 3e-4}, 0), 3e-4);
}

TEST(LrSchedule, CosineFallsFromThePeakToItsLeastValue) {
  const LrSchedule schedule = {.decay = LrDecay::Cosine,
                               .peak = 1.0,
                               .warmup_steps = 10,
                               .total_steps = 111,
                               .min_ratio = 0.2};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 9), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 10), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 60), 0.6);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 110), 0.2);
  for (int step = 11; step < 111; ++step) {
    EXPECT_LT(learning_rate(schedule, step), learning_rate(schedule, step - 1));
  }
}

TEST(LrSchedule, CosineFollowsTimeWhereStepsAreUnknown) {
  const LrSchedule schedule = {
      .decay = LrDecay::Cosine, .peak = 1.0, .min_ratio = 0.0};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1000, 0.0), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1000, 0.5), 0.5);
  EXPECT_NEAR(learning_rate(schedule, 1000, 1.0), 0.0, 1e-15);
  EXPECT_NEAR(learning_rate(schedule, 1000, 1.5), 0.0, 1e-15);
}

TEST(LrSchedule, StepsOrTimeDecideWhicheverIsFurther) {
  const LrSchedule schedule = {
      .decay = LrDecay::Cosine, .peak = 1.0, .total_steps = 101};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 50, 0.1), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 10, 0.5), 0.5);
}

TEST(LrSchedule, LinearFallsInEqualStepsToItsLeastValue) {
  const LrSchedule schedule = {.decay = LrDecay::Linear,
                               .peak = 2.0,
                               .warmup_steps = 10,
                               .total_steps = 111,
                               .min_ratio = 0.5};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 0), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 9), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 10), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 35), 1.75);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 60), 1.5);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 110), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 200), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 60, 0.75), 1.25);
}

TEST(LrSchedule, WsdHoldsThePeakUntilTheLastDecaySteps) {
  LrSchedule schedule = {.decay = LrDecay::Wsd,
                         .peak = 1.0,
                         .warmup_steps = 4,
                         .total_steps = 100,
                         .min_ratio = 0.2,
                         .decay_steps = 16};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 3), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 50), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 83), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 84), 0.95);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 87), 0.8);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 99), 0.2);
  schedule.shape = WsdShape::OneMinusSqrt;
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 83), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 84), 0.8);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 87), 0.6);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 99), 0.2);
}

TEST(LrSchedule, WsdDecaysInTheLastFifthOfStepsOrTime) {
  LrSchedule schedule = {.decay = LrDecay::Wsd, .peak = 1.0, .total_steps = 50};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 39), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 40), 0.9);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 49), 0.0);
  schedule.total_steps = 0;
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 7, 0.75), 1.0);
  EXPECT_NEAR(learning_rate(schedule, 7, 0.9), 0.5, 1e-12);
  EXPECT_NEAR(learning_rate(schedule, 7, 1.0), 0.0, 1e-12);
}

TEST(LrSchedule, WsdWhoseDecayFollowsWarmUpHasNoPlateau) {
  const LrSchedule schedule = {.decay = LrDecay::Wsd,
                               .peak = 1.0,
                               .warmup_steps = 2,
                               .total_steps = 6,
                               .decay_steps = 4};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 0), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 2), 0.75);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 5), 0.0);
}

TEST(LrSchedule, WarmUpOfTheWholeRunEndsAtThePeak) {
  const LrSchedule schedule = {.decay = LrDecay::Cosine,
                               .peak = 1.0,
                               .warmup_steps = 5,
                               .total_steps = 5};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 4), 1.0);
}

}  // namespace
}  // namespace accordion
