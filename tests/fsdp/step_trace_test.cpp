// SPDX-License-Identifier: BSD-3-Clause
// Where the time of a step goes: the sums, the executor's spans, the picture.
#include "accordion/fsdp/step_trace.h"

#include <algorithm>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "accordion/fsdp/controls.h"
#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/fsdp/step_trace_json.h"
#include "tests/fsdp/models.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using testing::on_ranks;
using testing::seeded;

using TracedNet = Unit<testing::UnitNet>;

constexpr std::int64_t kMs = 1'000'000;

TEST(StepTrace, MomentsCountForTheInnermostSpan) {
  const std::vector<Span> spans = {
      {SpanKind::Data, -1, 1 * kMs, 3 * kMs},
      {SpanKind::Forward, 0, 3 * kMs, 30 * kMs},
      {SpanKind::StartGather, 1, 4 * kMs, 6 * kMs},
      {SpanKind::AwaitGather, 1, 6 * kMs, 9 * kMs},
      {SpanKind::Backward, 1, 31 * kMs, 50 * kMs},
      {SpanKind::StartReduce, 1, 49 * kMs, 51 * kMs},  // outlasts its backward
      {SpanKind::Optimizer, -1, 60 * kMs, 90 * kMs},
      {SpanKind::Reshard, 0, 65 * kMs, 70 * kMs},
      {SpanKind::AwaitReduce, 0, 70 * kMs, 74 * kMs},
      {SpanKind::Other, -1, 95 * kMs, 99 * kMs},
  };
  const StepBreakdown parts = break_down(spans, 0, 100 * kMs);
  EXPECT_DOUBLE_EQ(parts.total, 100);
  EXPECT_DOUBLE_EQ(parts.data, 2);
  EXPECT_DOUBLE_EQ(parts.gather, 10);
  EXPECT_DOUBLE_EQ(parts.gather_wait, 3);
  EXPECT_DOUBLE_EQ(parts.reduce, 6);
  EXPECT_DOUBLE_EQ(parts.reduce_wait, 4);
  EXPECT_DOUBLE_EQ(parts.optimizer, 21);
  EXPECT_DOUBLE_EQ(parts.other, 4);
  EXPECT_NEAR(parts.compute, 57, 1e-9);
}

TEST(StepTrace, SpanThatNeverEndedCountsAsComputation) {
  const std::vector<Span> spans = {{SpanKind::AwaitGather, 0, 2 * kMs}};
  const StepBreakdown parts = break_down(spans, 0, 10 * kMs);
  EXPECT_DOUBLE_EQ(parts.compute, 10);
  EXPECT_DOUBLE_EQ(parts.gather, 0);
}

TEST(StepTrace, EndClosesTheYoungestOfItsKindAndUnit) {
  StepTrace trace;
  trace.begin_step();
  trace.begin(SpanKind::Forward, 1);
  trace.begin(SpanKind::Forward, 1);
  trace.begin(SpanKind::Forward, 2);
  trace.end(SpanKind::Forward, 1);
  trace.end(SpanKind::Backward, 1);  // of none
  EXPECT_EQ(trace.spans()[0].end_ns, Span::kOpen);
  EXPECT_GE(trace.spans()[1].end_ns, trace.spans()[1].begin_ns);
  EXPECT_EQ(trace.spans()[2].end_ns, Span::kOpen);
  trace.begin_step();
  EXPECT_TRUE(trace.spans().empty());
}

TEST(StepTrace, SpanCostsFarLessThanAMicrosecond) {
  StepTrace trace;
  constexpr int kSpans = 20'000;
  trace.begin_step();
  for (int i = 0; i < kSpans; ++i) {
    trace.begin(SpanKind::Other);
    trace.end(SpanKind::Other);
  }
  trace.begin_step();  // memory is there now
  const std::clock_t start = std::clock();
  for (int i = 0; i < kSpans; ++i) {
    const TraceScope span(&trace, SpanKind::StartGather, 3);
  }
  const double seconds =
      static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  RecordProperty("ns", std::to_string(seconds / kSpans * 1e9));
  EXPECT_LT(seconds / kSpans, 1e-6);
}

/// Trains two steps, the second with a trace, and hands that to `check`.
void on_traced(int world, const FsdpOptions& options,
               const std::function<void(TracedNet&, const StepTrace&)>& check) {
  std::vector<TracedNet> nets;
  for (int rank = 0; rank < world; ++rank) {
    nets.push_back(seeded<TracedNet>());
  }
  on_ranks(world, [&](const DeviceMesh& mesh) {
    TracedNet& net = nets[static_cast<std::size_t>(mesh.rank())];
    fully_shard(net, mesh, options);
    const auto trace = std::make_shared<StepTrace>();
    const auto step = [&](int number) {
      net->zero_grad();
      const auto mine = [&](const torch::Tensor& rows) {
        return testing::rows_of(rows, mesh.rank(), mesh.world_size());
      };
      trace->begin_step();
      testing::loss_of(net(mine(testing::batch_of(number, 4))),
                       mine(testing::target_of(number, 4)))
          .backward();
      trace->end_step();
    };
    step(0);
    EXPECT_TRUE(trace->spans().empty());  // records only when asked
    set_step_trace(*net, trace);
    step(1);
    check(net, *trace);
    set_step_trace(*net, nullptr);
    step(2);
    EXPECT_TRUE(trace->spans().empty());
  });
}

std::size_t count(const StepTrace& trace, SpanKind kind) {
  const auto& spans = trace.spans();
  return static_cast<std::size_t>(
      std::count_if(spans.begin(), spans.end(),
                    [kind](const Span& span) { return span.kind == kind; }));
}

std::size_t count(const StepSchedule& schedule, ActionKind kind) {
  const auto& actions = schedule.actions;
  return static_cast<std::size_t>(std::count_if(
      actions.begin(), actions.end(),
      [kind](const Action& action) { return action.kind == kind; }));
}

TEST(StepTrace, ReplayedStepHasTheSpansOfItsSchedule) {
  on_traced(2, {.prefetch = 1}, [](TracedNet& net, const StepTrace& trace) {
    const StepSchedule schedule = step_schedule(*net);
    const std::vector<std::pair<SpanKind, ActionKind>> pairs = {
        {SpanKind::StartGather, ActionKind::Unshard},
        {SpanKind::AwaitGather, ActionKind::Unshard},
        {SpanKind::Reshard, ActionKind::Reshard},
        {SpanKind::KeepGradients, ActionKind::BackwardEnd},
        {SpanKind::StartReduce, ActionKind::Reduce},
        {SpanKind::AwaitReduce, ActionKind::FinishReduce},
        {SpanKind::Forward, ActionKind::Forward},
        {SpanKind::Backward, ActionKind::Backward},
    };
    for (const auto& [span, action] : pairs) {
      EXPECT_GT(count(trace, span), 0U) << to_string(span);
      EXPECT_EQ(count(trace, span), count(schedule, action)) << to_string(span);
    }
    for (const Span& span : trace.spans()) {
      EXPECT_NE(span.end_ns, Span::kOpen) << to_string(span.kind);
      EXPECT_GE(span.unit, 0);
    }
  });
}

TEST(StepTrace, PartsOfARealStepAddUpToIt) {
  on_traced(3, {}, [](TracedNet&, const StepTrace& trace) {
    const StepBreakdown parts = break_down(trace);
    EXPECT_GT(parts.total, 0);
    EXPECT_GT(parts.compute, 0);
    EXPECT_GT(parts.gather, 0);
    EXPECT_GT(parts.reduce, 0);
    EXPECT_LE(parts.gather_wait, parts.gather);
    EXPECT_NEAR(parts.compute + parts.gather + parts.reduce + parts.optimizer +
                    parts.data + parts.other,
                parts.total, 1e-6 * parts.total);
  });
}

TEST(StepTrace, JsonShowsSpansAndFlights) {
  StepTrace trace;
  trace.begin_step();
  trace.begin(SpanKind::Forward, 0);
  trace.begin(SpanKind::StartGather, 1);
  trace.end(SpanKind::StartGather, 1);
  trace.begin(SpanKind::AwaitGather, 1);
  trace.end(SpanKind::AwaitGather, 1);
  trace.end(SpanKind::Forward, 0);
  trace.begin(SpanKind::Optimizer);  // never ends: not shown
  trace.end_step();
  const std::vector<ScheduledUnit> units = {
      {.name = ""}, {.name = "blocks.0", .unsharded_bytes = 640}};
  const auto json = nlohmann::json::parse(to_trace_json(trace, units, 3));
  std::vector<std::string> shown;
  for (const auto& event : json["traceEvents"]) {
    EXPECT_EQ(event["pid"], 3);
    if (event["ph"] == "X") {
      EXPECT_GE(event["ts"], 0.0);
      EXPECT_GE(event["dur"], 0.0);
      shown.push_back(event["name"]);
      EXPECT_EQ(event.contains("args"),
                event["name"] == "start gather blocks.0");
      if (event.contains("args")) {
        EXPECT_EQ(event["args"]["bytes"], 640);
      }
    }
  }
  EXPECT_EQ(shown,
            (std::vector<std::string>{"forward (root)", "start gather blocks.0",
                                      "await gather blocks.0", "blocks.0"}));
}

TEST(StepTrace, JsonShowsTransfersThatOverlap) {
  StepTrace trace;
  trace.begin_step();
  trace.end_step();
  const std::int64_t zero = trace.begin_ns();
  const std::vector<TransferSpan> transfers = {
      {.is_write = true, .bytes = 64, .begin_ns = zero, .end_ns = zero + 5000},
      {.bytes = 32, .begin_ns = zero + 1000, .end_ns = zero + 7000}};
  const auto json = nlohmann::json::parse(
      to_trace_json(trace, {}, 1, {.transfers = transfers}));
  std::vector<std::string> shown;
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] == "b" || event["ph"] == "e") {
      shown.push_back(event["ph"].get<std::string>() + event["id"].dump() +
                      " " + event["name"].get<std::string>() + " " +
                      event["ts"].dump() + " " + event["args"]["bytes"].dump());
    }
  }
  EXPECT_EQ(shown, (std::vector<std::string>{
                       "b0 offload write 0.0 64", "e0 offload write 5.0 64",
                       "b1 offload read 1.0 32", "e1 offload read 7.0 32"}));
}

}  // namespace
}  // namespace accordion
