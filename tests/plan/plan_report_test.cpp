// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/report/plan_report.h"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "accordion/plan/report/memory_kinds.h"
#include "accordion/plan/report/run_cost.h"
#include "accordion/plan/report/time_parts.h"
#include "accordion/plan/report/units.h"
#include "tests/plan/small_request.h"

namespace accordion::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::small_request;

PlanReport report_of(const std::string& cluster,
                     std::vector<std::string> keys = {}) {
  return make_report(make_question(
      {.model = "llama-2-7b", .cluster = cluster, .keys = std::move(keys)}));
}

TEST(Units, AreWrittenForPeople) {
  EXPECT_EQ(format_gib(85899345920.0), "80.0 GiB");
  EXPECT_EQ(format_seconds(0.0852), "85.2 ms");
  EXPECT_EQ(format_seconds(1.234), "1.23 s");
  EXPECT_EQ(format_seconds(7200), "2.00 hours");
  EXPECT_EQ(format_seconds(20 * 86400.0), "20.0 days");
  EXPECT_EQ(format_count(8192), "8,192");
  EXPECT_EQ(format_count(999.6), "1,000");
  EXPECT_EQ(format_count(6.74e9), "6.74 billion");
  EXPECT_EQ(format_amount(0.468), "0.47");
  EXPECT_EQ(format_amount(167701.4), "167,701");
  EXPECT_EQ(format_percent(0.1234), "12.3 %");
  EXPECT_EQ(bar(0.5, 4), "██");
  EXPECT_EQ(bar(0.0, 4), "");
  EXPECT_EQ(bar(7.0, 2), "██");
}

TEST(TimeParts, AddUpToTheStep) {
  for (const char* const cluster : {"1xH100", "8xH100", "16x8xA100-IB"}) {
    PlanRequest request = small_request(cluster);
    request.training.grad_accum = 3;
    request.training.checkpointing = Checkpointing::Full;
    const TimePlan time = make_plan(request).time;
    double sum = 0.0;
    for (const TimePart& part : time_parts(time)) {
      EXPECT_GE(part.seconds, -1e-12) << part.name;
      sum += part.seconds;
    }
    EXPECT_NEAR(sum, time.step_s, 1e-9 * time.step_s);
  }
}

TEST(RunCost, FollowsFromTokensAndPrices) {
  PlanRequest request = small_request();
  Plan plan;
  plan.tokens_per_step = 1000;
  plan.time.step_s = 3.6;
  const RunCost cost = run_cost(request, plan,
                                {.train_tokens = 1e6,
                                 .gpu_hour_price = 2.0,
                                 .kwh_price = 0.1,
                                 .power_factor = 1.5});
  EXPECT_DOUBLE_EQ(cost.steps, 1000.0);
  EXPECT_DOUBLE_EQ(cost.seconds, 3600.0);
  EXPECT_DOUBLE_EQ(cost.gpu_hours, 8.0);
  EXPECT_DOUBLE_EQ(cost.kwh, 8.0 * 0.7 * 1.5);  // H100: 700 W
  EXPECT_DOUBLE_EQ(cost.gpu_cost, 16.0);
  EXPECT_DOUBLE_EQ(cost.energy_cost, 0.84);
}

TEST(SampledTimeline, HasFirstPeakAndLast) {
  const MemoryPlan memory = make_plan(small_request()).memory;
  for (const std::size_t count : {3, 8, 16, 1000}) {
    const auto points = sampled(memory, count);
    EXPECT_LE(points.size(), count);
    EXPECT_EQ(points.front(), &memory.timeline.front());
    EXPECT_EQ(points.back(), &memory.timeline.back());
    EXPECT_THAT(points, ::testing::Contains(&memory.timeline[memory.peak]));
  }
}

TEST(PlanText, SaysWhatFitsHowFastAndWhatToChange) {
  const std::string text = to_text(report_of("8xH100"), {});
  for (const char* const part :
       {"llama-2-7b: 6.74 billion parameters", "1 host of 8 H100-80GB",
        "strategy=full_shard dp_shard=8", "Fits: ",
        "Memory of a GPU at its "
        "peak",
        "  activations ", "Memory over the last microbatch", "  optimizer  ",
        "P sharded_parameters", "Time of a step: ", "tokens/s a GPU", "MFU ",
        "Exposed communication", "What limits it", "Worth trying",
        "% tokens/s"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, Not(HasSubstr("\x1b[")));
  EXPECT_THAT(text, Not(HasSubstr("GPU-hours")));
  EXPECT_THAT(to_text(report_of("8xH100"), {.colour = true}),
              HasSubstr("\x1b["));
}

TEST(PlanText, WhatDoesNotFitSaysWhatWould) {
  const std::string text =
      to_text(make_report(make_question({.model = "llama-2-70b"})), {});
  EXPECT_THAT(text, HasSubstr("Does not fit: "));
  EXPECT_THAT(text, HasSubstr("Memory: "));
  EXPECT_THAT(text, HasSubstr("What makes it fit"));
}

TEST(PlanText, CostOnlyFromStatedPrices) {
  const std::string text =
      to_text(report_of("8xH100", {"train_tokens=1e12"}), {});
  EXPECT_THAT(text, HasSubstr("A run of 1.00 trillion tokens"));
  EXPECT_THAT(text, HasSubstr("GPU-hours"));
  EXPECT_THAT(text, HasSubstr("limit of 700 W"));
  EXPECT_THAT(text, Not(HasSubstr("an hour")));
  EXPECT_THAT(
      to_text(report_of("8xH100", {"train_tokens=1e12", "gpu_hour_price=2.5"}),
              {}),
      HasSubstr("for GPUs at 2.5 an hour"));
}

TEST(PlanJson, HasBaseUnitsAndEveryKey) {
  const PlanReport report = report_of("8xH100", {"train_tokens=1e12"});
  const nlohmann::json json = to_json(report);
  EXPECT_EQ(json["fits"], true);
  EXPECT_EQ(json["num_params"], 6738415616);
  EXPECT_EQ(json["settings"]["dp_shard"], "8");
  EXPECT_EQ(json["memory"]["timeline"].size(),
            report.plan.memory.timeline.size());
  EXPECT_DOUBLE_EQ(json["memory"]["peak_bytes"]["total"],
                   report.plan.memory.highest().total());
  EXPECT_DOUBLE_EQ(json["time"]["step_s"], report.plan.time.step_s);
  EXPECT_GT(json["run"]["gpu_hours"], 0.0);
  EXPECT_FALSE(json["advice"].empty());
}

}  // namespace
}  // namespace accordion::plan
