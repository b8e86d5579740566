// SPDX-License-Identifier: BSD-3-Clause
// A head and its loss in chunks, against both at once.
#include "accordion/ops/linear_cross_entropy.h"

#include <gmock/gmock.h>

#include "accordion/ops/linear.h"
#include "tests/ops/compare.h"

namespace accordion {
namespace {

using ::testing::HasSubstr;
using testing::sample;

constexpr int64_t kRows = 11;
constexpr int64_t kWidth = 24;
constexpr int64_t kClasses = 37;
constexpr double kDivisor = 8;

struct Head {
  at::Tensor hidden, weight, targets;
  at::Tensor loss = {}, correct = {};

  Head(at::ScalarType dtype, bool hidden_trains, bool weight_trains)
      : hidden(sample({kRows, kWidth}, 1, dtype).requires_grad_(hidden_trains)),
        weight(
            sample({kClasses, kWidth}, 2, dtype).requires_grad_(weight_trains)),
        targets(at::arange(kRows, at::kLong) * 5 % kClasses) {
    targets[2] = ops::kIgnoredTarget;
  }

  /// 0: all at once.
  void forward(int64_t chunk) {
    const ops::CrossEntropy result =
        chunk == 0
            ? ops::cross_entropy(ops::linear(hidden, weight), targets, kDivisor)
            : ops::linear_cross_entropy(hidden, weight, targets, kDivisor,
                                        chunk);
    loss = result.loss;
    correct = result.correct;
  }
};

void expect_alike(const Head& got, const Head& want, double bound,
                  const std::string& what) {
  testing::expect_norm_close(got.loss.detach(), want.loss.detach(), 1e-6, what);
  EXPECT_TRUE(at::equal(got.correct, want.correct)) << what;
  for (const auto& [mine, theirs] :
       {std::pair(got.hidden.grad(), want.hidden.grad()),
        std::pair(got.weight.grad(), want.weight.grad())}) {
    ASSERT_EQ(mine.defined(), theirs.defined()) << what;
    if (theirs.defined()) {
      EXPECT_EQ(mine.scalar_type(), theirs.scalar_type()) << what;
      testing::expect_norm_close(mine, theirs, bound, what);
    }
  }
}

TEST(LinearCrossEntropy, ChunksHaveTheLossAndGradientsOfTheWhole) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    // Sums over up to 11 chunks round each time, in fp16 in fp32.
    const double bound = dtype == at::kBFloat16 ? 11 * testing::kBf16Rounding
                         : dtype == at::kHalf   ? 2.0 / 1024
                                                : 1e-5;
    for (const bool hidden : {true, false}) {
      for (const bool weight : {true, false}) {
        Head whole(dtype, hidden, weight);
        whole.forward(0);
        if (hidden || weight) {
          (whole.loss * 3).backward();
        }
        for (const int64_t chunk : {1, 4, 10, 11, 100}) {
          Head chunked(dtype, hidden, weight);
          chunked.forward(chunk);
          EXPECT_EQ(chunked.loss.requires_grad(), hidden || weight);
          if (hidden || weight) {
            (chunked.loss * 3).backward();
          }
          expect_alike(chunked, whole, bound,
                       std::string(c10::toString(dtype)) + ", chunks of " +
                           std::to_string(chunk));
        }
      }
    }
  }
}

TEST(LinearCrossEntropy, ServesSeveralBackwardsAndNone) {
  Head whole(at::kFloat, true, true);
  whole.forward(0);
  Head chunked(at::kFloat, true, true);
  chunked.forward(4);
  for (int i = 0; i < 2; ++i) {
    whole.loss.backward({}, /*retain_graph=*/true);
    chunked.loss.backward({}, /*retain_graph=*/true);
  }
  expect_alike(chunked, whole, 1e-5, "twice");
  const at::NoGradGuard no_grad;
  Head evaluated(at::kFloat, true, true);
  evaluated.forward(4);
  EXPECT_FALSE(evaluated.loss.requires_grad());
  EXPECT_EQ(evaluated.loss.item<float>(), chunked.loss.item<float>());
}

TEST(LinearCrossEntropy, MistakesAreNamed) {
  const auto error_of = [](const at::Tensor& hidden, const at::Tensor& weight,
                           const at::Tensor& targets, double divisor,
                           int64_t rows) -> std::string {
    try {
      ops::linear_cross_entropy(hidden, weight, targets, divisor, rows);
    } catch (const c10::ValueError& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  const at::Tensor hidden = at::ones({3, 4}).requires_grad_();
  const at::Tensor weight = at::ones({5, 4});
  const at::Tensor targets = at::zeros({3}, at::kLong);
  EXPECT_THAT(error_of(hidden, weight, targets, 1, 0), HasSubstr("rows is 0"));
  EXPECT_THAT(error_of(hidden, at::ones({5, 3}), targets, 1, 2),
              HasSubstr("hidden has shape [3, 4] and weight [5, 3]"));
  EXPECT_THAT(error_of(hidden, weight, at::zeros({2}, at::kLong), 1, 2),
              HasSubstr("logits have shape [3, 5] and targets [2]"));
  EXPECT_THAT(error_of(hidden, weight, targets + 5, 1, 2),
              HasSubstr("the target of row 0 is 5"));
  EXPECT_THAT(error_of(hidden, weight, targets, 0, 2),
              HasSubstr("divisor is 0"));
}

}  // namespace
}  // namespace accordion
