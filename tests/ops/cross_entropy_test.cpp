// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/cross_entropy.h"

#include <limits>

#include "accordion/ops/composite.h"
#include "tests/ops/compare.h"

namespace accordion::testing {
namespace {

using Function = ops::CrossEntropy (*)(const at::Tensor&, const at::Tensor&,
                                       double);

at::Tensor targets_below(int64_t classes, int64_t rows) {
  return at::arange(rows, at::kLong).mul(7).add(3).remainder(classes);
}

struct LossAndGradient {
  ops::CrossEntropy result;
  at::Tensor gradient;
};

/// With the gradient of 3 * loss.
LossAndGradient run(Function function, const at::Tensor& logits,
                    const at::Tensor& targets, double divisor) {
  const at::Tensor leaf = logits.detach().clone().requires_grad_();
  // The operator may write over its input, but not over a leaf.
  const ops::CrossEntropy result = function(leaf * 1, targets, divisor);
  return {result, torch::autograd::grad({result.loss * 3}, {leaf})[0]};
}

void expect_matches_composite(Function function, const at::Tensor& logits,
                              const at::Tensor& targets, Tolerance tolerance) {
  const LossAndGradient got = run(function, logits, targets, 11.0);
  const LossAndGradient expected =
      run(ops::composite::cross_entropy, logits.to(at::kDouble), targets, 11.0);
  EXPECT_EQ(got.result.loss.scalar_type(), at::kFloat);
  EXPECT_EQ(got.gradient.scalar_type(), logits.scalar_type());
  expect_close(got.result.loss, expected.result.loss, kFp32, "loss");
  expect_close(got.gradient, expected.gradient, tolerance, "gradient");
  EXPECT_EQ(got.result.correct.item<int64_t>(),
            expected.result.correct.item<int64_t>());
}

TEST(CrossEntropy, MatchesTheCompositeInFp64) {
  for (const int64_t classes : {2, 257, 1000}) {
    const at::Tensor logits = sample({29, classes}, 1).mul(4);
    for (const Function function : {ops::cross_entropy, ops::cross_entropy_}) {
      expect_matches_composite(function, logits, targets_below(classes, 29),
                               kFp32);
    }
  }
}

// Scaling by the incoming 3 rounds once more.
TEST(CrossEntropy, KeepsTheLossInFp32ForBf16Logits) {
  const at::Tensor logits = sample({29, 257}, 1, at::kBFloat16);
  for (const Function function : {ops::cross_entropy, ops::cross_entropy_}) {
    expect_matches_composite(function, logits, targets_below(257, 29),
                             {2.02 * kBf16Rounding, 1e-5});
  }
}

TEST(CrossEntropy, KeepsTheLossInFp32ForFp16Logits) {
  const at::Tensor logits = sample({29, 257}, 1, at::kHalf);
  for (const Function function : {ops::cross_entropy, ops::cross_entropy_}) {
    expect_matches_composite(function, logits, targets_below(257, 29),
                             {2.02 * kFp16Rounding, 1e-5});
  }
}

TEST(CrossEntropy, GradientThatFp16DoesNotHoldCanBeScaledUp) {
  // p / divisor is about 2^-8 / 2^20, far below the smallest half, 2^-24.
  const double divisor = 1 << 20;
  const double scale = 1 << 18;
  const at::Tensor logits = sample({29, 257}, 1, at::kHalf);
  const auto gradient = [&](Function function, at::ScalarType dtype) {
    const at::Tensor leaf = logits.to(dtype).requires_grad_();
    const auto result = function(leaf * 1, targets_below(257, 29), divisor);
    return torch::autograd::grad({result.loss * scale}, {leaf})[0];
  };
  const at::Tensor exact = gradient(ops::composite::cross_entropy, at::kDouble);
  for (const Function function : {ops::cross_entropy, ops::cross_entropy_}) {
    expect_close(gradient(function, at::kHalf), exact,
                 {2.02 * kFp16Rounding, 1e-5}, "gradient");
  }
}

TEST(CrossEntropy, SkipsIgnoredTargets) {
  at::Tensor targets = targets_below(50, 20);
  targets[3] = ops::kIgnoredTarget;
  targets[19] = ops::kIgnoredTarget;
  expect_matches_composite(ops::cross_entropy, sample({20, 50}, 1), targets,
                           kFp32);
}

TEST(CrossEntropy, TakesLogitsThatAreNotContiguous) {
  const at::Tensor logits = sample({50, 20}, 1).t();
  expect_matches_composite(ops::cross_entropy_, logits, targets_below(50, 20),
                           kFp32);
}

TEST(CrossEntropy, InPlaceWritesTheGradientOverTheLogits) {
  const at::Tensor weights = sample({20, 50}, 1).requires_grad_();
  const at::Tensor logits = at::mm(at::eye(20), weights);
  const ops::CrossEntropy result =
      ops::cross_entropy_(logits, targets_below(50, 20), 20.0);
  const at::Tensor gradient =
      torch::autograd::grad({result.loss}, {weights})[0];
  EXPECT_TRUE(at::allclose(logits.detach(), gradient, 0, 1e-7));
}

TEST(CrossEntropy, InPlaceIsReportedToWhoeverKeptTheLogits) {
  const at::Tensor x = sample({4, 5}, 1).requires_grad_();
  const at::Tensor logits = x.exp();  // keeps its result for backward
  const ops::CrossEntropy result =
      ops::cross_entropy_(logits, targets_below(5, 4), 4.0);
  EXPECT_NE(message_of([&] {
              result.loss.backward();
            }).find("modified by an inplace operation"),
            std::string::npos);
}

TEST(CrossEntropy, LeavesLogitsAloneWithoutGradient) {
  const at::Tensor logits = sample({20, 50}, 1).requires_grad_();
  const at::Tensor before = logits.detach().clone();
  torch::NoGradGuard no_grad;
  const ops::CrossEntropy result =
      ops::cross_entropy_(logits, targets_below(50, 20), 20.0);
  EXPECT_TRUE(at::equal(logits, before));
  EXPECT_FALSE(result.loss.requires_grad());
}

TEST(CrossEntropy, CountsTheFirstOfEqualLogits) {
  const at::Tensor logits = at::tensor({1.F, 2.F, 2.F, 0.F}).repeat({3, 1});
  const at::Tensor targets = at::tensor({1, 2, 0}, at::kLong);
  EXPECT_EQ(ops::cross_entropy(logits, targets, 3).correct.item<int64_t>(), 1);
}

TEST(CrossEntropy, SecondBackwardFindsTheSameGradient) {
  const at::Tensor leaf = sample({4, 5}, 1).requires_grad_();
  const ops::CrossEntropy result =
      ops::cross_entropy_(leaf * 1, targets_below(5, 4), 4.0);
  const auto gradient = [&] {
    return torch::autograd::grad({result.loss * 2}, {leaf}, {}, true)[0];
  };
  const at::Tensor first = gradient();
  EXPECT_TRUE(at::equal(first, gradient()));
}

TEST(CrossEntropy, NotANumberStaysOne) {
  const at::Tensor logits =
      at::full({1, 9}, std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(ops::cross_entropy(logits, targets_below(9, 1), 1)
                  .loss.isnan()
                  .item<bool>());
}

TEST(CrossEntropy, NamesWhatIsWrong) {
  const at::Tensor logits = at::ones({2, 4});
  const at::Tensor targets = at::tensor({1, 4}, at::kLong);
  EXPECT_VALUE_ERROR(ops::cross_entropy(logits, targets, 2),
                     "the target of row 1 is 4, which is no class");
  EXPECT_VALUE_ERROR(ops::cross_entropy(logits, targets, 0), "divisor is 0");
  EXPECT_VALUE_ERROR(ops::cross_entropy(logits, at::ones({3}), 2),
                     "targets [3] (Float)");
}

}  // namespace
}  // namespace accordion::testing
