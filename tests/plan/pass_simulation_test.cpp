// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/pass_simulation.h"

#include <gtest/gtest.h>

namespace accordion::plan {
namespace {

/// A root that costs nothing and `layers` layers.
StepSchedule schedule_of(int layers, int depth) {
  std::vector<ScheduledUnit> units = {
      {.name = "", .unsharded_bytes = 1, .gradient_bytes = 1, .kept = true}};
  for (int layer = 0; layer < layers; ++layer) {
    units.push_back({.name = "layers." + std::to_string(layer),
                     .unsharded_bytes = 1,
                     .gradient_bytes = 1});
  }
  const std::vector<Action> markers = forward_backward_markers(units);
  return make_schedule(std::move(units), markers, {.depth = depth});
}

std::vector<UnitTimes> times_of(int layers, double gather, double reduce) {
  UnitTimes layer;
  layer.forward = 1.0;
  layer.backward = 2.0;
  layer.gather = layer.gather_backward = gather;
  layer.reduce = reduce;
  std::vector<UnitTimes> times(static_cast<std::size_t>(1 + layers), layer);
  times[0] = UnitTimes{};
  return times;
}

TEST(PassSimulation, WithoutCommunicationIsComputation) {
  const auto pass =
      simulate_pass(schedule_of(4, 1), times_of(4, 0.0, 0.0), 0.0);
  EXPECT_DOUBLE_EQ(pass.seconds, 4 * 3.0);
  EXPECT_EQ(pass.num_collectives, 0);
}

TEST(PassSimulation, PrefetchHidesAllButTheFirstGather) {
  const auto pass =
      simulate_pass(schedule_of(4, 1), times_of(4, 0.5, 0.0), 0.0);
  EXPECT_DOUBLE_EQ(pass.exposed_gather, 0.5);
  EXPECT_DOUBLE_EQ(pass.seconds, 12.0 + 0.5);
}

TEST(PassSimulation, WithoutPrefetchEveryGatherIsExposed) {
  const auto pass =
      simulate_pass(schedule_of(4, 0), times_of(4, 0.5, 0.0), 0.0);
  // The last layer stays from forward to backward.
  EXPECT_DOUBLE_EQ(pass.exposed_gather, 7 * 0.5);
}

TEST(PassSimulation, LastReductionIsExposed) {
  const auto pass =
      simulate_pass(schedule_of(4, 1), times_of(4, 0.0, 1.5), 0.0);
  EXPECT_DOUBLE_EQ(pass.exposed_reduce, 1.5);
  EXPECT_DOUBLE_EQ(pass.reduce, 4 * 1.5);
}

TEST(PassSimulation, LinksBoundWhenTheyAreSlower) {
  const auto pass =
      simulate_pass(schedule_of(8, 1), times_of(8, 5.0, 5.0), 0.0);
  // Each layer but the last is gathered twice, each is reduced once.
  EXPECT_GE(pass.seconds, (8 + 7 + 8) * 5.0);
}

TEST(PassSimulation, ComputationAndWaitsAddUp) {
  const auto pass =
      simulate_pass(schedule_of(6, 1), times_of(6, 1.7, 2.9), 0.0);
  EXPECT_NEAR(
      pass.seconds,
      pass.forward + pass.backward + pass.exposed_gather + pass.exposed_reduce,
      1e-9);
}

TEST(PassSimulation, EventsOfAStreamDoNotOverlap) {
  const auto pass =
      simulate_pass(schedule_of(6, 1), times_of(6, 1.7, 2.9), 0.0);
  for (const Stream stream :
       {Stream::Compute, Stream::Gather, Stream::Reduce}) {
    double end = 0.0;
    for (const StreamEvent& event : pass.events) {
      if (event.stream == stream) {
        EXPECT_GE(event.begin_s, end - 1e-12);
        end = event.end_s;
      }
    }
  }
}

}  // namespace
}  // namespace accordion::plan
