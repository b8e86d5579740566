// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/search/advice.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace accordion::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Advised {
  PlanQuestion question;
  PlanRequest request;
  Plan plan;
  std::vector<Advice> advice;
};

Advised advised(const std::string& model, const std::string& cluster,
                std::vector<std::string> keys = {}) {
  Advised result;
  result.question = make_question(
      {.model = model, .cluster = cluster, .keys = std::move(keys)});
  result.request = resolved(result.question);
  result.plan = make_plan(result.request);
  result.advice =
      worthwhile_changes(result.question, result.request, result.plan);
  return result;
}

TEST(Advice, IsThreeKindsThatFitAndGain) {
  const Advised result = advised("llama-2-7b", "8xH100");
  ASSERT_EQ(result.advice.size(), 3U);
  std::set<std::string> kinds;
  double previous = 1e9;
  for (const Advice& advice : result.advice) {
    EXPECT_TRUE(advice.changed.plan.fits);
    EXPECT_GT(advice.gain, 0.01);
    EXPECT_LE(advice.gain, previous);
    EXPECT_TRUE(kinds.insert(advice.changed.change.kind).second);
    previous = advice.gain;
  }
}

TEST(Advice, GainIsThatOfTheChangedPlan) {
  const Advised result = advised("llama-2-7b", "8xH100");
  for (const Advice& advice : result.advice) {
    PlanQuestion changed = result.question;
    for (const std::string& key : advice.changed.change.keys) {
      state_key(key, changed);
    }
    EXPECT_DOUBLE_EQ(make_plan(resolved(changed)).tokens_per_s_per_gpu,
                     (1.0 + advice.gain) * result.plan.tokens_per_s_per_gpu);
  }
}

TEST(Advice, SlowNetworkSuggestsAMeshWithinHosts) {
  const Advised result = advised("llama-2-7b", "16x8xH100-Ethernet-25",
                                 {"micro_batch=4", "checkpointing=full",
                                  "reduce_bytes=2", "batch_tokens=1048576"});
  EXPECT_THAT(binding_constraint(result.request, result.plan),
              AllOf(StartsWith("Communication"), HasSubstr("Ethernet-25")));
  EXPECT_THAT(result.advice,
              ::testing::Contains(::testing::Truly([](const Advice& advice) {
                return advice.changed.change.kind == "mesh" ||
                       advice.changed.change.kind == "secondary copy";
              })));
}

TEST(Advice, RoomThatIsLeftKeepsActivations) {
  const Advised result =
      advised("llama-3-70b", "16x8xH100-IB",
              {"seq_len=8192", "checkpointing=full", "batch_tokens=1048576"});
  EXPECT_THAT(binding_constraint(result.request, result.plan),
              StartsWith("Recomputation"));
  ASSERT_FALSE(result.advice.empty());
  EXPECT_THAT(result.advice.front().changed.change.keys,
              ::testing::ElementsAre(HasSubstr("checkpointed_share=")));
}

TEST(Advice, WhatDoesNotFitIsMadeToFit) {
  const Advised result = advised("llama-2-70b", "8xA100-80GB");
  EXPECT_FALSE(result.plan.fits);
  EXPECT_THAT(binding_constraint(result.request, result.plan),
              AllOf(StartsWith("Memory: "), HasSubstr("A100-80GB")));
  ASSERT_FALSE(result.advice.empty());
  for (const Advice& advice : result.advice) {
    EXPECT_TRUE(advice.changed.plan.fits) << advice.changed.change.why;
  }
}

TEST(Advice, ComputationLimitsOneGpuThatIsBusy) {
  const Advised result = advised("llama-3.2-1b", "1xH100", {"micro_batch=4"});
  EXPECT_THAT(binding_constraint(result.request, result.plan),
              StartsWith("Computation: "));
}

}  // namespace
}  // namespace accordion::plan
