// SPDX-License-Identifier: BSD-3-Clause
// Loops over rows against plain arithmetic in fp64: without tensors, so that
// they run in every variant that a processor may choose.
#include <cmath>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "accordion/ops/kernels/gelu.h"
#include "accordion/ops/kernels/layer_norm.h"
#include "accordion/ops/kernels/row_kernels.h"

namespace accordion::kernels {
namespace {

constexpr std::int64_t kRows = 3;
constexpr std::int64_t kWidth = 53;  // with a remainder for every vector
constexpr std::int64_t kNumel = kRows * kWidth;

/// In [-2, 2], reproducible.
template <class T>
std::vector<T> sample(std::int64_t numel, int seed) {
  std::vector<T> result(numel);
  for (std::int64_t i = 0; i < numel; ++i) {
    store(result[i],
          static_cast<float>((i * 7919 + seed * 104'729) % 1000) / 250.0F - 2);
  }
  return result;
}

/// Distance allowed, relative: of fp32 arithmetic, and one rounding.
double tolerance_of(const float& /*type*/) {
  return 1e-5;
}
double tolerance_of(const Bf16& /*type*/) {
  return 1.01 / 256;
}
double tolerance_of(const Fp16& /*type*/) {
  return 1.01 / 2048;
}

template <class T>
void expect_near(const T& got, double expected) {
  EXPECT_NEAR(to_float(got), expected,
              tolerance_of(T{}) * std::abs(expected) + 1e-5);
}

template <class T>
class RowKernels : public ::testing::Test {};
using Types = ::testing::Types<float, Bf16, Fp16>;
TYPED_TEST_SUITE(RowKernels, Types);

TYPED_TEST(RowKernels, RmsNormDividesByTheRootOfTheMeanSquare) {
  const auto x = sample<TypeParam>(kNumel, 1);
  const auto weight = sample<TypeParam>(kWidth, 2);
  std::vector<TypeParam> y(kNumel);
  rms_norm(x.data(), weight.data(), y.data(), kRows, kWidth, 1e-5F);
  for (std::int64_t row = 0; row < kRows; ++row) {
    double squares = 0;
    for (std::int64_t i = 0; i < kWidth; ++i) {
      squares += std::pow(to_float(x[row * kWidth + i]), 2) / kWidth;
    }
    for (std::int64_t i = 0; i < kWidth; ++i) {
      expect_near(y[row * kWidth + i], to_float(x[row * kWidth + i]) *
                                           to_float(weight[i]) /
                                           std::sqrt(squares + 1e-5));
    }
  }
}

TYPED_TEST(RowKernels, LayerNormTakesMeanAndDeviationOfARow) {
  const auto x = sample<TypeParam>(kNumel, 1);
  const auto weight = sample<TypeParam>(kWidth, 2);
  const auto bias = sample<TypeParam>(kWidth, 3);
  std::vector<TypeParam> y(kNumel);
  layer_norm(LayerNormForward<TypeParam>{.x = x.data(),
                                         .branch = nullptr,
                                         .weight = weight.data(),
                                         .bias = bias.data(),
                                         .sum = nullptr,
                                         .y = y.data(),
                                         .rows = kRows,
                                         .width = kWidth,
                                         .eps = 1e-5F});
  for (std::int64_t row = 0; row < kRows; ++row) {
    double mean = 0;
    double squares = 0;
    for (std::int64_t i = 0; i < kWidth; ++i) {
      mean += static_cast<double>(to_float(x[row * kWidth + i])) / kWidth;
    }
    for (std::int64_t i = 0; i < kWidth; ++i) {
      squares += std::pow(to_float(x[row * kWidth + i]) - mean, 2) / kWidth;
    }
    for (std::int64_t i = 0; i < kWidth; ++i) {
      expect_near(y[row * kWidth + i], (to_float(x[row * kWidth + i]) - mean) /
                                               std::sqrt(squares + 1e-5) *
                                               to_float(weight[i]) +
                                           to_float(bias[i]));
    }
  }
}

/// Holds an activation and its derivative to `exact` and its difference
/// quotient.
template <class T>
void expect_gelu(GeluForm form, const std::function<double(double)>& exact) {
  const auto x = sample<T>(kNumel, 1);
  const auto dy = sample<T>(kNumel, 2);
  std::vector<T> y(kNumel);
  std::vector<T> dx(kNumel);
  gelu(form, GeluForward<T>{.x = x.data(),
                            .bias = nullptr,
                            .y = y.data(),
                            .rows = 1,
                            .width = kNumel});
  gelu_backward(form, GeluBackward<T>{.x = x.data(),
                                      .bias = nullptr,
                                      .dy = dy.data(),
                                      .dx = dx.data(),
                                      .dbias = nullptr,
                                      .rows = 1,
                                      .width = kNumel});
  for (std::int64_t i = 0; i < kNumel; ++i) {
    const double at = to_float(x[i]);
    expect_near(y[i], exact(at));
    const double slope = (exact(at + 1e-4) - exact(at - 1e-4)) / 2e-4;
    expect_near(dx[i], slope * to_float(dy[i]));
  }
}

TYPED_TEST(RowKernels, GeluIsXTimesTheNormalDistribution) {
  expect_gelu<TypeParam>(GeluForm::Exact, [](double x) {
    return x * std::erfc(-x / std::sqrt(2.0)) / 2;
  });
  expect_gelu<TypeParam>(GeluForm::Tanh, [](double x) {
    return x / 2 *
           (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
  });
}

TYPED_TEST(RowKernels, SwigluIsSiluOfTheGateTimesUp) {
  const auto gate = sample<TypeParam>(kNumel, 1);
  const auto up = sample<TypeParam>(kNumel, 2);
  std::vector<TypeParam> y(kNumel);
  swiglu(gate.data(), up.data(), y.data(), kNumel);
  for (std::int64_t i = 0; i < kNumel; ++i) {
    const double g = to_float(gate[i]);
    expect_near(y[i], g / (1 + std::exp(-g)) * to_float(up[i]));
  }
}

}  // namespace
}  // namespace accordion::kernels
