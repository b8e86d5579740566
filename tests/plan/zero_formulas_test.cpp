// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/zero_formulas.h"

#include <gtest/gtest.h>

namespace accordion::plan {
namespace {

constexpr double kGib = 1073741824.0;

// Rajbhandari et al. 2020, arXiv:1910.02054, figure 1: 7.5B on 64 ranks.
TEST(ZeroFormulas, PaperOf7BOn64Ranks) {
  EXPECT_NEAR(zero_paper_bytes(7.5e9, 64, Sharding::NoShard), 120e9, 1e6);
  EXPECT_NEAR(zero_paper_bytes(7.5e9, 64, Sharding::ShardOptimizer), 31.4e9,
              0.05e9);
  EXPECT_NEAR(zero_paper_bytes(7.5e9, 64, Sharding::DeepSpeedZero2), 16.6e9,
              0.05e9);
  EXPECT_NEAR(zero_paper_bytes(7.5e9, 64, Sharding::FullShard), 1.875e9, 1e6);
}

// The two accountings of stage 2 differ in the copy that stays.
TEST(ZeroFormulas, Zero2OfFsdp2HasNoWholeCopy) {
  EXPECT_NEAR(zero_paper_bytes(7.5e9, 64, Sharding::ShardGradOp), 1.875e9, 1e6);
}

// deepspeedai/DeepSpeed, docs/code-docs/source/memory.rst: T5-3B on 8 GPUs.
TEST(ZeroFormulas, DeepSpeedsEstimateOfT5) {
  DeepSpeedQuestion question = {
      .params = 2851e6, .largest_layer_params = 32e6, .gpus = 8, .stage = 2};
  EXPECT_NEAR(deepspeed_estimate(question).gpu_bytes / kGib, 15.93, 0.01);
  question.optimizer_on_host = true;
  EXPECT_NEAR(deepspeed_estimate(question).gpu_bytes / kGib, 5.31, 0.01);
  EXPECT_NEAR(deepspeed_estimate(question).host_bytes / kGib, 127.48, 0.1);
  question.stage = 3;
  EXPECT_NEAR(deepspeed_estimate(question).gpu_bytes / kGib, 0.79, 0.01);
  EXPECT_NEAR(deepspeed_estimate(question).host_bytes / kGib, 63.74, 0.1);
  question.parameters_on_host = true;
  EXPECT_NEAR(deepspeed_estimate(question).gpu_bytes / kGib, 0.12, 0.01);
}

}  // namespace
}  // namespace accordion::plan
