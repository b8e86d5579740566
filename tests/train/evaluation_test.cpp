// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/evaluation.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/fixtures.h"

namespace accordion {
namespace {

/// Byte j is j.
std::vector<std::uint8_t> counting_text(std::size_t bytes) {
  std::vector<std::uint8_t> text(bytes);
  std::iota(text.begin(), text.end(), std::uint8_t{0});
  return text;
}

/// First bytes of all windows that count, over all ranks.
std::vector<std::int64_t> starts(std::span<const std::uint8_t> text,
                                 EvaluationOptions options) {
  std::vector<std::int64_t> starts;
  for (options.rank = 0; options.rank < options.world_size; ++options.rank) {
    for (const Batch& batch : evaluation_batches(text, options)) {
      for (std::int64_t row = 0; row < options.batch_size; ++row) {
        const auto at = static_cast<std::size_t>(row * options.seq_len);
        if (batch.targets[at] != kNoTarget) {
          EXPECT_EQ(batch.targets[at], batch.inputs[at] + 1);
          starts.push_back(batch.inputs[at]);
        }
      }
    }
  }
  std::ranges::sort(starts);
  return starts;
}

TEST(Evaluation, WindowsAreSpreadFromTheFirstByteToTheLast) {
  const auto text = counting_text(101);
  EXPECT_THAT(starts(text, {.seq_len = 20, .sequences = 3}),
              ::testing::ElementsAre(0, 40, 80));
  EXPECT_THAT(starts(text, {.seq_len = 20, .sequences = 99}),
              ::testing::ElementsAre(0, 20, 40, 60, 80));
  EXPECT_THAT(starts(counting_text(21), {.seq_len = 20, .sequences = 99}),
              ::testing::ElementsAre(0));
}

TEST(Evaluation, AnyWorldSizeMeasuresTheSameWindowsOnce) {
  const auto text = counting_text(200);
  const auto single = starts(text, {.seq_len = 10, .sequences = 13});
  ASSERT_EQ(single.size(), 13U);
  for (const int world : {2, 3, 4}) {
    EXPECT_EQ(starts(text, {.seq_len = 10,
                            .sequences = 13,
                            .batch_size = 2,
                            .world_size = world}),
              single);
  }
}

TEST(Evaluation, EveryRankHasEquallyManyBatches) {
  const auto text = counting_text(200);
  for (int rank = 0; rank < 4; ++rank) {
    const auto batches = evaluation_batches(text, {.seq_len = 10,
                                                   .sequences = 9,
                                                   .batch_size = 2,
                                                   .rank = rank,
                                                   .world_size = 4});
    EXPECT_EQ(batches.size(), 2U) << "rank " << rank;
  }
}

TEST(Evaluation, HeldOutTextShorterThanAWindowIsAnError) {
  const auto text = counting_text(10);
  EXPECT_THAT(
      testing::message_of([&] { evaluation_batches(text, {.seq_len = 10}); }),
      ::testing::HasSubstr("too short: 10 bytes, but seq_len 10 needs "
                           "at least 11"));
}

}  // namespace
}  // namespace accordion
