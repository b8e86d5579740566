// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/search/search.h"

#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "accordion/plan/search/limits.h"

namespace accordion::plan {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

PlanQuestion question_of(const std::string& model, const std::string& cluster,
                         std::vector<std::string> keys = {}) {
  return make_question(
      {.model = model, .cluster = cluster, .keys = std::move(keys)});
}

TEST(Search, FindsPlansThatFitFastestFirst) {
  const PlanQuestion question = question_of("llama-2-7b", "2x8xH100");
  const SearchResult found = search(question, 5);
  ASSERT_EQ(found.fastest.size(), 5U);
  double previous = 1e300;
  for (const FoundPlan& each : found.fastest) {
    EXPECT_TRUE(each.plan.fits);
    EXPECT_LE(each.plan.tokens_per_s_per_gpu, previous);
    previous = each.plan.tokens_per_s_per_gpu;
    PlanQuestion asked = question;
    for (const std::string& key : each.keys) {
      state_key(key, asked);
    }
    EXPECT_DOUBLE_EQ(make_plan(resolved(asked)).tokens_per_s_per_gpu,
                     each.plan.tokens_per_s_per_gpu);
  }
  EXPECT_GE(found.fastest.front().plan.tokens_per_s_per_gpu,
            make_plan(resolved(question)).tokens_per_s_per_gpu);
}

TEST(Search, LeavesStatedKeysAsTheyAre) {
  const SearchResult found =
      search(question_of("llama-2-7b", "2x8xH100",
                         {"strategy=shard_grad_op", "micro_batch=2",
                          "checkpointing=selective", "tensor=2"}));
  ASSERT_FALSE(found.fastest.empty());
  for (const FoundPlan& each : found.fastest) {
    EXPECT_EQ(each.request.strategy.sharding, Sharding::ShardGradOp);
    EXPECT_EQ(each.request.strategy.tensor, 2);
    EXPECT_EQ(each.request.training.micro_batch, 2);
    EXPECT_EQ(each.request.training.checkpointing, Checkpointing::Selective);
  }
}

TEST(Search, KeepsAStatedBatch) {
  const std::int64_t tokens = 4'194'304;
  const SearchResult found = search(question_of(
      "llama-2-7b", "8x8xH100", {"batch_tokens=4194304", "seq_len=4096"}));
  ASSERT_FALSE(found.fastest.empty());
  for (const FoundPlan& each : found.fastest) {
    EXPECT_EQ(each.plan.tokens_per_step, tokens);
  }
}

TEST(Search, SaysWhatNeedsLeastWhereNothingFits) {
  const SearchResult found = search(question_of("llama-3.1-405b", "8xA100"));
  EXPECT_TRUE(found.fastest.empty());
  EXPECT_EQ(found.num_fitting, 0);
  ASSERT_EQ(found.smallest.size(), 1U);
  EXPECT_THAT(found.smallest.front().keys, Contains("micro_batch=1"));
}

TEST(Search, SixteenThousandGpusTakeSeconds) {
  const auto begin = std::chrono::steady_clock::now();
  const SearchResult found =
      search(question_of("llama-3.1-405b", "2048x8xH100-IB", {"seq_len=8192"}));
  const std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - begin;
  EXPECT_FALSE(found.fastest.empty());
  // Sanitizers are ten times slower.
  EXPECT_LT(seconds.count(), 60.0);
  RecordProperty("milliseconds", static_cast<int>(1e3 * seconds.count()));
}

TEST(Limits, LargestModelIsAtTheBorder) {
  const PlanQuestion question = question_of("llama-2-7b", "8xH100");
  const std::vector<Limit> limits = max_model(question);
  ASSERT_EQ(limits.size(), 3U);
  double previous = 0.0;
  for (const Limit& limit : limits) {
    ASSERT_TRUE(limit.request.has_value());
    EXPECT_TRUE(limit.plan.fits);
    EXPECT_GT(limit.plan.memory.reserved_bytes,
              0.9 * limit.request->cluster.gpu.memory_bytes);
    const auto params = static_cast<double>(limit.request->model.num_params());
    EXPECT_GT(params, previous);
    previous = params;
  }
}

TEST(Limits, FewestGpusFitAndOneStepFewerDoNot) {
  const PlanQuestion question = question_of("llama-2-70b", "8xH100");
  const std::vector<Limit> limits = min_gpus(question);
  ASSERT_TRUE(limits.front().request.has_value());
  const PlanRequest& fits = *limits.front().request;
  EXPECT_TRUE(make_plan(fits).fits);
  ASSERT_GT(fits.cluster.num_hosts, 1);
  PlanQuestion fewer = question;
  fewer.cluster = fits.cluster;
  --fewer.cluster.num_hosts;
  EXPECT_FALSE(make_plan(resolved(fewer)).fits);
}

TEST(Limits, SmallModelFitsAPartOfAHost) {
  const std::vector<Limit> limits =
      min_gpus(question_of("llama-3.2-1b", "8xH100"));
  ASSERT_TRUE(limits.front().request.has_value());
  EXPECT_EQ(limits.front().request->cluster.num_gpus(), 1);
}

}  // namespace
}  // namespace accordion::plan
