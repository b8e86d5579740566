// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/models/initialize.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace accordion {
namespace {

using Shape = std::vector<std::int64_t>;

std::vector<float> whole(const char* name, const Shape& shape,
                         std::uint64_t seed = 7) {
  std::int64_t numel = 1;
  for (const std::int64_t dim : shape) {
    numel *= dim;
  }
  std::vector<float> values(static_cast<std::size_t>(numel));
  initialize(name, shape, 0, seed, values);
  return values;
}

TEST(Initialize, PiecesEqualTheWholeWhereverTheyAreCut) {
  const Shape shape = {13, 11};
  const std::vector<float> expected = whole("w", shape);
  for (const std::int64_t step : {1, 3, 4, 50}) {
    std::vector<float> got;
    for (std::int64_t begin = 0; begin < 143; begin += step) {
      std::vector<float> piece(
          static_cast<std::size_t>(std::min(step, 143 - begin)));
      initialize("w", shape, begin, 7, piece);
      got.insert(got.end(), piece.begin(), piece.end());
    }
    EXPECT_EQ(got, expected) << step;
  }
}

TEST(Initialize, MatricesAreNormal) {
  const std::vector<float> values = whole("w", {500, 400});
  double sum = 0;
  double squares = 0;
  double fourth = 0;
  for (const float value : values) {
    const double x = value / 0.02;
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  const auto count = static_cast<double>(values.size());
  EXPECT_NEAR(sum / count, 0, 5 / std::sqrt(count));
  EXPECT_NEAR(squares / count, 1, 5 * std::sqrt(2 / count));
  EXPECT_NEAR(fourth / count, 3, 5 * std::sqrt(96 / count));
}

TEST(Initialize, DependsOnSeedAndName) {
  EXPECT_EQ(whole("w", {8, 8}), whole("w", {8, 8}));
  EXPECT_NE(whole("w", {8, 8}), whole("v", {8, 8}));
  EXPECT_NE(whole("w", {8, 8}), whole("w", {8, 8}, 8));
}

TEST(Initialize, NormsAreOneAndBiasesZero) {
  EXPECT_EQ(whole("model.norm.weight", {3}), std::vector<float>(3, 1.0F));
  EXPECT_EQ(whole("q_proj.bias", {3}), std::vector<float>(3, 0.0F));
}

}  // namespace
}  // namespace accordion
