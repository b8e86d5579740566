// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/evaluation.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/memory_tokens.h"

namespace accordion {
namespace {

using testing::numbered_tokens;

/// First tokens of all windows of a text that count, over all ranks.
std::vector<std::int64_t> starts(std::int64_t size, std::int64_t seq_len,
                                 EvaluationOptions options) {
  const auto text = numbered_tokens(size, size);
  const StreamWindows windows(text.range(), seq_len);
  std::vector<std::int64_t> starts;
  for (options.rank = 0; options.rank < options.world_size; ++options.rank) {
    for (const Batch& batch : evaluation_batches(windows, options)) {
      for (std::int64_t row = 0; row < options.batch_size; ++row) {
        const auto at = static_cast<std::size_t>(row * seq_len);
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

TEST(Evaluation, WindowsAreSpreadFromTheFirstTokenToTheLast) {
  EXPECT_THAT(starts(101, 20, {.sequences = 3}),
              ::testing::ElementsAre(0, 40, 80));
  EXPECT_THAT(starts(101, 20, {.sequences = 99}),
              ::testing::ElementsAre(0, 20, 40, 60, 80));
  EXPECT_THAT(starts(21, 20, {.sequences = 99}), ::testing::ElementsAre(0));
}

TEST(Evaluation, AnyWorldSizeMeasuresTheSameWindowsOnce) {
  const auto single = starts(200, 10, {.sequences = 13});
  ASSERT_EQ(single.size(), 13U);
  for (const int world : {2, 3, 4}) {
    EXPECT_EQ(starts(200, 10,
                     {.sequences = 13, .batch_size = 2, .world_size = world}),
              single);
  }
}

TEST(Evaluation, EveryRankHasEquallyManyBatches) {
  const auto text = numbered_tokens(200, 200);
  const StreamWindows windows(text.range(), 10);
  for (int rank = 0; rank < 4; ++rank) {
    const auto batches = evaluation_batches(
        windows,
        {.sequences = 9, .batch_size = 2, .rank = rank, .world_size = 4});
    EXPECT_EQ(batches.size(), 2U) << "rank " << rank;
  }
}

}  // namespace
}  // namespace accordion
