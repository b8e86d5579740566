// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/memory_timeline.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "accordion/fsdp/step_trace_json.h"

namespace accordion {
namespace {

/// Two units: the first is gathered, and its gradient reduced.
const std::vector<ScheduledUnit> kUnits = {
    {.name = "a", .unsharded_bytes = 1 << 20, .gradient_bytes = 2 << 20},
    {.name = "b",
     .unsharded_bytes = 8 << 20,
     .gradient_bytes = 16 << 20,
     .begins_unsharded = true}};

StepTrace traced() {
  StepTrace trace;
  trace.begin_step();
  for (const SpanKind kind : {SpanKind::StartGather, SpanKind::BeginGradients,
                              SpanKind::Reshard, SpanKind::AwaitReduce}) {
    trace.begin(kind, 0);
    trace.end(kind, 0);
  }
  trace.begin(SpanKind::Optimizer);  // never ends
  trace.end_step();
  return trace;
}

TEST(MemoryTimeline, SlotsComeAndGoWithTheirActions) {
  const auto moments = memory_timeline(traced(), {}, kUnits);
  ASSERT_EQ(moments.size(), 8U);
  std::vector<std::int64_t> unsharded;
  std::vector<std::int64_t> gradients;
  for (const MemoryMoment& moment : moments) {
    unsharded.push_back(moment.unsharded_parameters >> 20);
    gradients.push_back(moment.whole_gradients >> 20);
  }
  EXPECT_EQ(unsharded, (std::vector<std::int64_t>{9, 9, 9, 9, 9, 8, 8, 8}));
  EXPECT_EQ(gradients, (std::vector<std::int64_t>{0, 0, 2, 2, 2, 2, 2, 0}));
  EXPECT_EQ(moments.back().kind, SpanKind::AwaitReduce);
  EXPECT_TRUE(moments.back().end);
}

TEST(MemoryTimeline, WhatIsGatheredInPlaceTakesNothing) {
  std::vector<ScheduledUnit> units = kUnits;
  units[0].in_place = true;
  for (const MemoryMoment& moment : memory_timeline(traced(), {}, units)) {
    EXPECT_EQ(moment.unsharded_parameters, 8 << 20) << "of the other";
  }
}

TEST(MemoryTimeline, ActivationsAreThoseOfTheLastSample) {
  const StepTrace trace = traced();
  const std::int64_t second = trace.spans()[1].begin_ns;
  const std::vector<AllocationMeter::Sample> samples = {
      {.ns = trace.begin_ns() - 1, .in_passes = 5, .outside = 1},
      {.ns = second, .in_passes = 70, .outside = 2},
      {.ns = trace.end_ns() + 1, .in_passes = 900, .outside = 3}};
  const auto moments = memory_timeline(trace, samples, kUnits);
  EXPECT_EQ(moments.front().activations, 5);
  EXPECT_EQ(moments.front().other, 1);
  EXPECT_EQ(moments.back().activations, 70);
  EXPECT_EQ(moments.back().other, 2);
}

TEST(MemoryTimeline, IsACurveInTheTraceOfTheStep) {
  const StepTrace trace = traced();
  const auto moments = memory_timeline(trace, {}, kUnits);
  const auto json = nlohmann::json::parse(
      to_trace_json(trace, kUnits, 1, {.memory = moments}));
  int curves = 0;
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] == "C") {
      EXPECT_EQ(event["name"], "memory (MiB)");
      EXPECT_GE(event["args"]["unsharded parameters"], 8.0);
      ++curves;
    }
  }
  EXPECT_EQ(curves, 8);
}

}  // namespace
}  // namespace accordion
