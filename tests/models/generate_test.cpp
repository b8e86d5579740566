// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/models/generate.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace accordion {
namespace {

using Tokens = std::vector<int64_t>;

/// A model that wants the successor of the last token, then its successor.
at::Tensor count_up(const at::Tensor& tokens) {
  at::Tensor logits = at::zeros({1, tokens.size(1), 10});
  for (int64_t i = 0; i < tokens.size(1); ++i) {
    const int64_t token = tokens[0][i].item<int64_t>();
    logits[0][i][(token + 1) % 10] = 5;
    logits[0][i][(token + 2) % 10] = 4;
  }
  return logits;
}

TEST(Generate, GreedyTakesTheLargestLogit) {
  EXPECT_EQ(generate(count_up, {7}, {.num_tokens = 4}),
            (Tokens{7, 8, 9, 0, 1}));
}

TEST(Generate, ShowsTheModelAtMostItsContext) {
  int64_t longest = 0;
  const auto watch = [&longest](const at::Tensor& tokens) {
    longest = std::max(longest, tokens.size(1));
    return count_up(tokens);
  };
  const Tokens got =
      generate(watch, {1, 2, 3}, {.num_tokens = 6, .max_context = 4});
  EXPECT_EQ(longest, 4);
  EXPECT_EQ(got.size(), 9U);
}

TEST(Generate, DrawsOnlyFromTheTop) {
  const Tokens got = generate(
      count_up, {0}, {.num_tokens = 200, .temperature = 5.0, .top_k = 2});
  int64_t seconds = 0;
  for (size_t i = 1; i < got.size(); ++i) {
    const int64_t step = (got[i] - got[i - 1] + 10) % 10;
    ASSERT_TRUE(step == 1 || step == 2);
    seconds += step == 2 ? 1 : 0;
  }
  // Probability 1 / (1 + e^0.2) = 0.45 each, deviation 7.
  EXPECT_NEAR(static_cast<double>(seconds), 90, 28);
}

TEST(Generate, RepeatsItselfForASeed) {
  const auto with_seed = [](uint64_t seed) {
    return generate(count_up, {0},
                    {.num_tokens = 50, .temperature = 3.0, .seed = seed});
  };
  EXPECT_EQ(with_seed(1), with_seed(1));
  EXPECT_NE(with_seed(1), with_seed(2));
}

TEST(Generate, NamesOptionsThatCannotBe) {
  EXPECT_THROW(generate(count_up, {}), c10::ValueError);
  try {
    generate(count_up, {1}, {.temperature = -1});
    ADD_FAILURE();
  } catch (const c10::ValueError& error) {
    EXPECT_NE(std::string(error.what()).find("temperature -1"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace accordion
