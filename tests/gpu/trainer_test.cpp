// SPDX-License-Identifier: BSD-3-Clause
// The trainer on one GPU against PyTorch's recorded curve.
#include "tests/gpu/gpu_support.h"
#include "tests/train/train_ranks.h"

namespace accordion {
namespace {

class GpuTrainer : public testing::OnGpu {};

TEST_F(GpuTrainer, FollowsPytorchAtEachOfThirtySteps) {
  const auto expected = testing::recorded("tiny.global-batch-8");
  ASSERT_EQ(expected.size(), 30U);
  testing::expect_follows(
      testing::train_in_ranks(
          1, testing::with(testing::parity_keys("tiny"),
                           {"train.steps=30", "train.batch_size=8",
                            "train.device=cuda"})),
      expected, 1e-4, 1e-3);
}

}  // namespace
}  // namespace accordion
