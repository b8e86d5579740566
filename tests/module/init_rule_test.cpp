// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/module/init_rule.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace accordion {
namespace {

std::vector<float> drawn(const InitRule& rule, std::int64_t begin,
                         std::int64_t numel, std::uint64_t key = 7) {
  std::vector<float> values(static_cast<std::size_t>(numel));
  fill(rule, key, begin, values);
  return values;
}

double mean_of(const std::vector<float>& values, int power) {
  double sum = 0;
  for (const float value : values) {
    sum += std::pow(value, power);
  }
  return sum / static_cast<double>(values.size());
}

TEST(InitRule, PiecesEqualTheWholeWhereverTheyAreCut) {
  InitRule padded = InitRule::normal(0, 1);
  padded.zero_begin = 22;
  padded.zero_end = 33;
  for (const InitRule& rule :
       {InitRule::constant(3), InitRule::uniform(-1, 2), padded}) {
    const std::vector<float> expected = drawn(rule, 0, 143);
    for (const std::int64_t step : {1, 3, 4, 50}) {
      std::vector<float> got;
      for (std::int64_t begin = 0; begin < 143; begin += step) {
        const auto piece = drawn(rule, begin, std::min(step, 143 - begin));
        got.insert(got.end(), piece.begin(), piece.end());
      }
      EXPECT_EQ(got, expected) << step;
    }
  }
}

TEST(InitRule, UniformFillsItsIntervalEvenly) {
  const auto values = drawn(InitRule::uniform(-1, 3), 0, 200'000);
  const auto [low, high] = std::ranges::minmax(values);
  EXPECT_GE(low, -1.0F);
  EXPECT_LE(high, 3.0F);
  const double count = static_cast<double>(values.size());
  EXPECT_NEAR(mean_of(values, 1), 1, 5 * std::sqrt(16.0 / 12 / count));
  EXPECT_NEAR(mean_of(values, 2) - 1, 16.0 / 12, 0.02);
}

TEST(InitRule, NormalHasItsMoments) {
  const auto values = drawn(InitRule::normal(2, 0.5), 0, 200'000);
  EXPECT_NEAR(mean_of(values, 1), 2, 0.006);
  EXPECT_NEAR(mean_of(values, 2) - 4, 0.25, 0.02);
}

TEST(InitRule, TheZeroRangeIsZeroAndNothingElse) {
  InitRule rule = InitRule::normal(0, 1);
  rule.zero_begin = 4;
  rule.zero_end = 6;
  const auto values = drawn(rule, 3, 4);  // elements 3 to 6
  EXPECT_NE(values[0], 0.0F);
  EXPECT_EQ(values[1], 0.0F);
  EXPECT_EQ(values[2], 0.0F);
  EXPECT_NE(values[3], 0.0F);
}

TEST(InitRule, KeysDifferBySeedAndName) {
  EXPECT_EQ(random_key(1, "a.weight"), random_key(1, "a.weight"));
  EXPECT_NE(random_key(1, "a.weight"), random_key(2, "a.weight"));
  EXPECT_NE(random_key(1, "a.weight"), random_key(1, "b.weight"));
  // Runs that were started must continue to mean the same weights.
  EXPECT_FLOAT_EQ(drawn(InitRule::normal(0, 1), 0, 1, random_key(7, "w"))[0],
                  0.626383722F);
}

}  // namespace
}  // namespace accordion
