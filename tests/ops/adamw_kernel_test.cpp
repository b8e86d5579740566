// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "accordion/ops/kernels/adamw.h"
#include "accordion/ops/kernels/stochastic_rounding.h"

namespace accordion::kernels {
namespace {

using Key = std::array<std::uint32_t, 2>;

constexpr std::uint32_t kChoices = 1U << 16;  // of the random bits of a value

Bf16 rounded(float value, std::uint32_t random) {
  Bf16 result;
  store(result, value, random);
  return result;
}

TEST(StochasticRounding, ItsMeanOverAllRandomBitsIsTheValue) {
  for (const float value : {1.0F, 1.00001F, -1.2345678F, 3e-39F, 1.9999999F,
                            -7.7e-12F, 65504.3F, 0.0F}) {
    double sum = 0;
    for (std::uint32_t random = 0; random < kChoices; ++random) {
      sum += to_float(rounded(value, random));
    }
    EXPECT_EQ(sum / kChoices, static_cast<double>(value));
  }
}

TEST(StochasticRounding, KeepsInfinityAndNotANumber) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const std::uint32_t random : {0U, 1U, kChoices - 1}) {
    EXPECT_EQ(to_float(rounded(kInfinity, random)), kInfinity);
    EXPECT_EQ(to_float(rounded(-kInfinity, random)), -kInfinity);
    EXPECT_TRUE(std::isnan(to_float(rounded(std::nanf(""), random))));
    EXPECT_TRUE(std::isnan(to_float(rounded(-std::nanf("1"), random))));
  }
}

/// Correlation of two sequences of uniform 16-bit numbers.
template <class First, class Second>
double correlation(std::uint32_t count, const First& first,
                   const Second& second) {
  constexpr double kMean = (kChoices - 1) / 2.0;
  constexpr double kVariance = (double{kChoices} * kChoices - 1) / 12.0;
  double sum = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    sum += (first(i) - kMean) * (second(i) - kMean);
  }
  return sum / kVariance / count;
}

// Of independent numbers it has deviation 1 / sqrt(count): 5 of them are
// passed once in 1.7 million.
TEST(RandomBits, ElementsStepsAndHalvesAreUncorrelated) {
  constexpr std::uint32_t kCount = 1 << 18;
  const double bound = 5 / std::sqrt(kCount);
  const Key key = {0x243f6a88, 0x85a308d3};
  const auto high_of = [](const Key& of, std::uint32_t shift) {
    return [of, shift](std::uint32_t i) {
      return static_cast<double>(random_bits(i + shift, of) >> 16);
    };
  };
  const auto high = high_of(key, 0);
  const auto low = [&](std::uint32_t i) {
    return static_cast<double>(random_bits(i, key) & 0xffffU);
  };
  EXPECT_LT(std::abs(correlation(kCount, high, low)), bound);
  for (const std::uint32_t shift : {1U, 2U, 16U, 4096U}) {
    EXPECT_LT(std::abs(correlation(kCount, high, high_of(key, shift))), bound)
        << shift;
  }
  for (const Key& other : {Key{0x13198a2e, 0x03707344}, Key{key[0], 0x03707344},
                           Key{0x13198a2e, key[1]}, Key{key[1], key[0]}}) {
    EXPECT_LT(std::abs(correlation(kCount, high, high_of(other, 0))), bound)
        << other[0] << ", " << other[1];
  }
}

TEST(RandomBits, HalvesAreUniform) {
  constexpr std::uint32_t kCount = 1 << 20;
  constexpr int kBins = 256;
  std::vector<double> high(kBins);
  std::vector<double> low(kBins);
  for (std::uint32_t i = 0; i < kCount; ++i) {
    const std::uint32_t bits = random_bits(i, {1, 2});
    ++high[bits >> 24];
    ++low[bits >> 8 & 0xffU];
  }
  for (const auto& counts : {high, low}) {
    constexpr double kExpected = double{kCount} / kBins;
    double chi_squared = 0;
    for (const double count : counts) {
      chi_squared += (count - kExpected) * (count - kExpected) / kExpected;
    }
    // Mean 255, deviation sqrt(510).
    EXPECT_LT(chi_squared, 255 + 5 * std::sqrt(510.0));
  }
}

constexpr AdamWStep kStep = {.gradient_scale = 0.5F,
                             .keep = 0.99F,
                             .first_weight = 0.1F,
                             .second_weight = 0.05F,
                             .beta2 = 0.95F,
                             .step_size = 0.01F,
                             .root_scale = 1.5F,
                             .eps = 1e-8F};
constexpr AdamWRounding kRounding = {
    .moments_key = {3, 5}, .parameters_key = {7, 11}, .first_element = 90};
constexpr std::int64_t kBeyond = 5;  // elements behind, not to be touched

/// Parameters, gradients and both moments; element i names itself.
template <class Parameter, class Moment>
struct Arrays {
  explicit Arrays(std::int64_t numel)
      : parameters(numel + kBeyond),
        gradients(numel + kBeyond),
        first(numel + kBeyond),
        second(numel + kBeyond) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const auto x = static_cast<float>(i);
      store(parameters[i], std::sin(x), 0);
      store(gradients[i], std::cos(1.7F * x), 0);
      store(first[i], 0.3F * std::sin(0.9F * x), 0);
      store(second[i], 0.01F + 0.001F * x, 0);
    }
  }
  AdamWOperands<Parameter, Moment> from(std::int64_t i) {
    return {&parameters[i], &gradients[i], &first[i], &second[i]};
  }
  std::vector<Parameter> parameters, gradients;
  std::vector<Moment> first, second;
};

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// All at once is what one at a time is: no element depends on those beside it,
/// or on whether it lies in a full vector.
template <class Parameter, class Moment, class Update>
void expect_elements_alone(const Update& update) {
  for (std::int64_t numel = 0; numel < 150; ++numel) {
    Arrays<Parameter, Moment> together(numel);
    Arrays<Parameter, Moment> alone(numel);
    update(together.from(0), numel, 0);
    for (std::int64_t i = 0; i < numel; ++i) {
      update(alone.from(i), 1, i);
    }
    EXPECT_TRUE(same(together.parameters, alone.parameters)) << numel;
    EXPECT_TRUE(same(together.first, alone.first)) << numel;
    EXPECT_TRUE(same(together.second, alone.second)) << numel;
  }
}

template <class Parameter, class Moment>
void to_nearest(const AdamWOperands<Parameter, Moment>& operands,
                std::int64_t numel, std::int64_t /*begin*/) {
  adamw(operands, kStep, numel);
}

template <class Parameter, class Moment>
void stochastic(const AdamWOperands<Parameter, Moment>& operands,
                std::int64_t numel, std::int64_t begin) {
  AdamWRounding rounding = kRounding;
  rounding.first_element += static_cast<std::uint32_t>(begin);
  adamw(operands, kStep, numel, rounding);
}

TEST(AdamWKernel, ElementsAreUpdatedAlone) {
  expect_elements_alone<float, float>(to_nearest<float, float>);
  expect_elements_alone<float, Bf16>(to_nearest<float, Bf16>);
  expect_elements_alone<Bf16, float>(to_nearest<Bf16, float>);
  expect_elements_alone<Bf16, Bf16>(to_nearest<Bf16, Bf16>);
  expect_elements_alone<float, Bf16>(stochastic<float, Bf16>);
  expect_elements_alone<Bf16, float>(stochastic<Bf16, float>);
  expect_elements_alone<Bf16, Bf16>(stochastic<Bf16, Bf16>);
}

/// The copy is what rounding the parameters afterwards gives, and nothing else
/// changes by it, wherever in a cache line it starts.
template <class Moment, class Update>
void expect_copy(const Update& update) {
  for (std::int64_t numel = 0; numel < 230; ++numel) {
    const std::int64_t at = numel % 37;
    Arrays<float, Moment> without(numel);
    Arrays<float, Moment> with(numel);
    const Bf16 untouched = rounded(-77.0F, 0);
    std::vector<Bf16> copy(at + numel + kBeyond, untouched);
    std::vector<Bf16> expected = copy;
    auto operands = with.from(0);
    operands.copy = copy.data() + at;
    update(operands, numel, 0);
    update(without.from(0), numel, 0);
    for (std::int64_t i = 0; i < numel; ++i) {
      store(expected[at + i], with.parameters[i]);
    }
    EXPECT_TRUE(same(copy, expected)) << numel;
    EXPECT_TRUE(same(with.parameters, without.parameters)) << numel;
    EXPECT_TRUE(same(with.first, without.first)) << numel;
    EXPECT_TRUE(same(with.second, without.second)) << numel;
  }
}

TEST(AdamWKernel, CopiesParametersInBf16) {
  expect_copy<float>(to_nearest<float, float>);
  expect_copy<Bf16>(to_nearest<float, Bf16>);
  expect_copy<Bf16>(stochastic<float, Bf16>);
}

/// |got - expected| in units of the spacing of bf16 around `expected`.
double spacings_off(Bf16 got, double expected) {
  const double spacing = std::ldexp(1.0, std::ilogb(expected) - 7);
  return std::abs(to_float(got) - expected) / spacing;
}

// fp32 arithmetic is off by far less than the hundredth of a spacing that is
// granted: a spacing is 2^16 of fp32's.
TEST(AdamWKernel, RoundsTheExactResultOnce) {
  constexpr std::int64_t kNumel = 1000;
  Arrays<Bf16, Bf16> before(kNumel);
  Arrays<Bf16, Bf16> nearest(kNumel);
  Arrays<Bf16, Bf16> either(kNumel);
  adamw(nearest.from(0), kStep, kNumel);
  adamw(either.from(0), kStep, kNumel, kRounding);
  int differing = 0;
  for (std::int64_t i = 0; i < kNumel; ++i) {
    const double gradient = 0.5 * to_float(before.gradients[i]);
    const double first = 0.9 * to_float(before.first[i]) + 0.1 * gradient;
    const double second =
        0.95 * to_float(before.second[i]) + 0.05 * gradient * gradient;
    const double parameter = 0.99 * to_float(before.parameters[i]) -
                             0.01 * first / (1.5 * std::sqrt(second) + 1e-8);
    EXPECT_LT(spacings_off(nearest.first[i], first), 0.51) << i;
    EXPECT_LT(spacings_off(nearest.second[i], second), 0.51) << i;
    EXPECT_LT(spacings_off(nearest.parameters[i], parameter), 0.51) << i;
    EXPECT_LT(spacings_off(either.first[i], first), 1.01) << i;
    EXPECT_LT(spacings_off(either.second[i], second), 1.01) << i;
    EXPECT_LT(spacings_off(either.parameters[i], parameter), 1.01) << i;
    differing += nearest.first[i].bits != either.first[i].bits ? 1 : 0;
  }
  // Half of them would be expected to lie less than half a spacing away, and
  // of all a quarter to be rounded the other way.
  EXPECT_NEAR(differing, kNumel / 4.0, 5 * std::sqrt(kNumel * 0.25 * 0.75));
}

}  // namespace
}  // namespace accordion::kernels
