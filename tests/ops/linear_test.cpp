// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/linear.h"

#include "tests/ops/compare.h"

namespace accordion {
namespace {

using testing::expect_matches;
using testing::kFp32;
using testing::Operator;
using testing::sample;

struct Case {
  std::vector<int64_t> x;
  int64_t out;
  bool bias;
};

/// Output and gradients of `linear`, against at::linear in fp64.
void expect_linear(const Case& c, const at::Tensor& x, bool onednn) {
  const auto run = [&](at::ScalarType dtype, bool reference) {
    const auto leaf = [dtype](const at::Tensor& value) {
      return value.to(dtype).detach().clone().requires_grad_();
    };
    const at::Tensor input = x.to(dtype).detach().requires_grad_();
    const at::Tensor weight = leaf(sample({c.out, c.x.back()}, 2));
    const at::Tensor bias = c.bias ? leaf(sample({c.out}, 3)) : at::Tensor();
    const at::Tensor y = reference ? at::linear(input, weight, bias)
                         : onednn
                             ? ops::detail::onednn_linear(input, weight, bias)
                             : ops::linear(input, weight, bias);
    (y * sample(y.sizes(), 4).to(dtype)).sum().backward();
    std::vector<at::Tensor> results{y.detach(), input.grad(), weight.grad()};
    if (c.bias) {
      results.push_back(bias.grad());
    }
    return results;
  };
  const auto expected = run(at::kDouble, true);
  const auto got = run(at::kFloat, false);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    testing::expect_close(got[i], expected[i], {1e-5, 1e-5},
                          "result " + std::to_string(i));
  }
}

TEST(Linear, AgreesWithLibTorchsForOddShapes) {
  for (const Case& c : {Case{{3, 5, 7}, 11, true}, Case{{1, 33}, 1, false},
                        Case{{2, 64, 48}, 80, false}, Case{{17, 1}, 9, true}}) {
    expect_linear(c, sample(c.x, 1), /*onednn=*/false);
    expect_linear(c, sample(c.x, 1), /*onednn=*/true);
  }
}

TEST(Linear, TakesInputsThatAreNotContiguous) {
  const Case c{{6, 4, 10}, 12, true};
  expect_linear(c, sample({4, 6, 10}, 1).transpose(0, 1), /*onednn=*/true);
  expect_linear(c, sample({6, 10, 4}, 1).transpose(1, 2), /*onednn=*/true);
}

TEST(Linear, RoundsOnceInFp16) {
  const Operator linear = [](const std::vector<at::Tensor>& in) {
    return std::vector{ops::linear(in[0], in[1], in[2])};
  };
  const Operator reference = [](const std::vector<at::Tensor>& in) {
    return std::vector{at::linear(in[0], in[1], in[2])};
  };
  expect_matches(linear, reference,
                 {sample({3, 5, 70}, 1), sample({11, 70}, 2), sample({11}, 3)},
                 at::kHalf, testing::kFp16RoundedOnce);
}

TEST(Linear, SkipsGradientsThatNobodyNeeds) {
  const auto x = sample({4, 6}, 1);
  const auto weight = sample({3, 6}, 2).requires_grad_();
  ops::detail::onednn_linear(x, weight, {}).sum().backward();
  EXPECT_FALSE(x.grad().defined());
  EXPECT_TRUE(weight.grad().is_contiguous());
}

}  // namespace
}  // namespace accordion
