// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/activation_memory.h"

#include <gtest/gtest.h>

#include "tests/plan/small_request.h"

namespace accordion::plan {
namespace {

using testing::small_request;

constexpr double kTokens = 2.0 * 2048.0;

TEST(ActivationMemory, FullCheckpointingKeepsTheInput) {
  PlanRequest request = small_request();
  request.training.checkpointing = Checkpointing::Full;
  EXPECT_DOUBLE_EQ(saved_by_layer(request), kTokens * 2.0 * 4096.0);
}

TEST(ActivationMemory, NothingCheckpointedCountsEachTensor) {
  // Two norms' inputs and outputs, query, key, value and attention's output,
  // three of the feed-forward, and 4 bytes a head of sums.
  const double elements = 4.0 * 4096.0 + 4.0 * 4096.0 + 3.0 * 11008.0;
  EXPECT_DOUBLE_EQ(saved_by_layer(small_request()),
                   kTokens * (2.0 * elements + 4.0 * 32.0));
}

TEST(ActivationMemory, SelectiveLiesBetween) {
  PlanRequest request = small_request();
  const double none = saved_by_layer(request);
  request.training.checkpointing = Checkpointing::Selective;
  const double selective = saved_by_layer(request);
  request.training.checkpointing = Checkpointing::Full;
  EXPECT_LT(selective, none);
  EXPECT_LT(saved_by_layer(request), selective);
}

TEST(ActivationMemory, UnfusedAttentionKeepsScores) {
  PlanRequest request = small_request();
  const double fused = saved_by_layer(request);
  request.training.attention = AttentionKind::Unfused;
  EXPECT_GT(saved_by_layer(request), fused + kTokens * 6.0 * 32.0 * 2000.0);
}

TEST(ActivationMemory, LossInPartsHoldsOnePartsLogits) {
  PlanRequest request = small_request();
  const double whole = logits_memory(request);
  request.training.loss_chunks = 8;
  EXPECT_DOUBLE_EQ(logits_memory(request), whole / 8.0);
}

TEST(ActivationMemory, FirstStageHoldsAMicrobatchAStage) {
  PlanRequest request = small_request();
  request.strategy.pipeline = 4;
  request.training.grad_accum = 16;
  EXPECT_DOUBLE_EQ(microbatches_in_flight(request), 4.0);
  request.training.grad_accum = 2;
  EXPECT_DOUBLE_EQ(microbatches_in_flight(request), 2.0);
}

}  // namespace
}  // namespace accordion::plan
