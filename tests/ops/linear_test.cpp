// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/linear.h"

#include "tests/ops/compare.h"

namespace accordion {
namespace {

using testing::expect_matches;
using testing::kFp32;
using testing::Operator;
using testing::sample;

struct LinearCase {
  std::vector<int64_t> x;
  int64_t out;
  bool bias;
};

/// Output and gradients of `linear`, against at::linear in fp64.
void expect_linear(const LinearCase& c, const at::Tensor& x, bool onednn) {
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
  for (const LinearCase& c :
       {LinearCase{{3, 5, 7}, 11, true}, LinearCase{{1, 33}, 1, false},
        LinearCase{{2, 64, 48}, 80, false}, LinearCase{{17, 1}, 9, true}}) {
    expect_linear(c, sample(c.x, 1), /*onednn=*/false);
    expect_linear(c, sample(c.x, 1), /*onednn=*/true);
  }
}

TEST(Linear, TakesInputsThatAreNotContiguous) {
  const LinearCase c{{6, 4, 10}, 12, true};
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

/// Three products of one x, as of queries, keys and values.
Operator products(bool together, bool with_bias) {
  return [together, with_bias](const std::vector<at::Tensor>& in) {
    std::vector<ops::LinearParameters> layers;
    for (int i = 1; i <= 3; ++i) {
      layers.push_back({in[i], with_bias ? in[3 + i] : at::Tensor()});
    }
    if (together) {
      return ops::linears(in[0], layers);
    }
    std::vector<at::Tensor> results;
    for (const auto& [weight, bias] : layers) {
      results.push_back(at::linear(in[0], weight, bias));
    }
    return results;
  };
}

TEST(Linears, AgreeWithLibTorchsOneByOne) {
  for (const bool with_bias : {false, true}) {
    std::vector<at::Tensor> in = {sample({3, 5, 33}, 1), sample({48, 33}, 2),
                                  sample({16, 33}, 3), sample({7, 33}, 4)};
    if (with_bias) {
      in.insert(in.end(), {sample({48}, 5), sample({16}, 6), sample({7}, 7)});
    }
    expect_matches(products(true, with_bias), products(false, with_bias), in,
                   at::kFloat, {1e-5, 1e-5});
  }
}

// The gradient of x is rounded behind each product, to 2^-8 of what it is then.
TEST(Linears, AddTheGradientOfXInBf16) {
  const std::vector<at::Tensor> in = {
      sample({40, 96}, 1, at::kBFloat16), sample({64, 96}, 2, at::kBFloat16),
      sample({32, 96}, 3, at::kBFloat16), sample({35, 96}, 4, at::kBFloat16)};
  const auto got =
      testing::run_with_gradients(products(true, false), in, at::kBFloat16);
  const auto expected =
      testing::run_with_gradients(products(false, false), in, at::kDouble);
  for (std::size_t i = 0; i < in.size(); ++i) {
    testing::expect_norm_close(got.gradients[i], expected.gradients[i],
                               testing::kBf16Rounding,
                               "gradient " + std::to_string(i));
  }
}

TEST(Linears, TakeAProductThatNobodyUses) {
  const auto x = sample({4, 6}, 1).requires_grad_();
  const auto used = sample({3, 6}, 2).requires_grad_();
  const auto unused = sample({3, 6}, 3).requires_grad_();
  ops::linears(x, {{used}, {unused}})[0].sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), used.detach().sum(0).expand({4, 6})));
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
