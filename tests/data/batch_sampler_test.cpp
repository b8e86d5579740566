// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/data/batch_sampler.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/fixtures.h"

namespace accordion {
namespace {

using ::testing::HasSubstr;
using testing::message_of;

/// Byte j is a formula in j; 251 is prime, so windows are told apart.
std::vector<std::uint8_t> numbered_text(std::size_t bytes) {
  std::vector<std::uint8_t> text(bytes);
  for (std::size_t j = 0; j < bytes; ++j) {
    text[j] = static_cast<std::uint8_t>(j % 251);
  }
  return text;
}

TEST(BatchSampler, StridedStartsWhereTheSchemeSays) {
  const auto text = numbered_text(1000);
  const std::int64_t seq = 16, batch = 3;
  const int world = 2, rank = 1;
  const BatchSampler sampler(text, {.order = SampleOrder::Strided,
                                    .seq_len = seq,
                                    .batch_size = batch,
                                    .rank = rank,
                                    .world_size = world});
  for (std::int64_t step = 0; step < 40; ++step) {
    const Batch got = sampler.batch(step, 0);
    for (std::int64_t i = 0; i < batch; ++i) {
      const std::int64_t start =
          ((step * world + rank) * batch + i) * seq % (1000 - seq - 1);
      for (std::int64_t t = 0; t < seq; ++t) {
        const auto at = static_cast<std::size_t>(i * seq + t);
        ASSERT_EQ(got.inputs[at], (start + t) % 251);
        ASSERT_EQ(got.targets[at], (start + t + 1) % 251);
      }
    }
  }
}

class GlobalBatch : public ::testing::TestWithParam<SampleOrder> {};

TEST_P(GlobalBatch, IsTheSameForAnyWorldSizeAndAccumulation) {
  const auto text = numbered_text(5000);
  BatchSamplerOptions whole = {
      .order = GetParam(), .seq_len = 8, .batch_size = 36, .seed = 9};
  const BatchSampler single(text, whole);
  for (const int world : {1, 2, 3, 4}) {
    for (const std::int64_t accumulation : {1, 3}) {
      const std::int64_t rows = 36 / world / accumulation;
      for (std::int64_t step = 0; step < 5; ++step) {
        std::vector<std::int64_t> joined;
        for (std::int64_t micro = 0; micro < accumulation; ++micro) {
          for (int rank = 0; rank < world; ++rank) {
            BatchSamplerOptions part = whole;
            part.batch_size = rows;
            part.grad_accumulation = accumulation;
            part.rank = rank;
            part.world_size = world;
            const Batch batch = BatchSampler(text, part).batch(step, micro);
            joined.insert(joined.end(), batch.inputs.begin(),
                          batch.inputs.end());
          }
        }
        ASSERT_EQ(joined, single.batch(step, 0).inputs)
            << "world " << world << ", accumulation " << accumulation;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(BatchSampler, GlobalBatch,
                         ::testing::Values(SampleOrder::Strided,
                                           SampleOrder::Shuffled));

TEST(BatchSampler, AnEpochReadsEachWindowOnce) {
  const auto text = numbered_text(1030);
  const BatchSampler sampler(text, {.seq_len = 10, .seed = 4});
  const std::int64_t windows = sampler.samples_per_epoch();
  ASSERT_EQ(windows, 102);
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<std::int64_t> starts;
    for (std::int64_t g = 0; g < windows; ++g) {
      const std::int64_t start = sampler.start_of(epoch * windows + g);
      ASSERT_GE(start, 0);
      ASSERT_LE(start + 11, 1030);
      starts.insert(start);
    }
    EXPECT_EQ(static_cast<std::int64_t>(starts.size()), windows);
  }
}

TEST(BatchSampler, EpochsDifferInOrderAndPhase) {
  const auto text = numbered_text(4001);
  const BatchSampler sampler(text, {.seq_len = 40, .seed = 4});
  std::set<std::int64_t> phases;
  std::set<std::int64_t> first_windows;
  for (std::int64_t epoch = 0; epoch < 8; ++epoch) {
    const auto start = sampler.start_of(epoch * sampler.samples_per_epoch());
    phases.insert(start % 40);
    first_windows.insert(start / 40);
  }
  EXPECT_GE(phases.size(), 5U);
  EXPECT_GE(first_windows.size(), 5U);
}

TEST(BatchSampler, ShuffledDependsOnTheSeed) {
  const auto text = numbered_text(4001);
  const BatchSampler one(text, {.seq_len = 40, .seed = 1});
  const BatchSampler again(text, {.seq_len = 40, .seed = 1});
  const BatchSampler two(text, {.seq_len = 40, .seed = 2});
  EXPECT_EQ(one.batch(3, 0).inputs, again.batch(3, 0).inputs);
  EXPECT_NE(one.batch(3, 0).inputs, two.batch(3, 0).inputs);
}

TEST(BatchSampler, ShortestTextHoldsOneWindow) {
  const auto text = numbered_text(10);
  const BatchSampler sampler(text, {.seq_len = 8});
  for (std::int64_t step = 0; step < 20; ++step) {
    EXPECT_LE(sampler.start_of(step), 1);
    EXPECT_EQ(sampler.batch(step, 0).inputs.size(), 8U);
  }
}

TEST(BatchSampler, TextShorterThanAWindowIsAnError) {
  const auto text = numbered_text(9);
  const std::string message =
      message_of([&] { BatchSampler(text, {.seq_len = 8}); });
  EXPECT_THAT(message, HasSubstr("too short: 9 bytes"));
  EXPECT_THAT(message, HasSubstr("at least 10"));
}

TEST(BatchSampler, OptionsOutOfRangeAreErrors) {
  const auto text = numbered_text(100);
  EXPECT_THAT(message_of([&] { BatchSampler(text, {.batch_size = 0}); }),
              HasSubstr("batch_size is 0"));
  EXPECT_THAT(
      message_of([&] { BatchSampler(text, {.rank = 2, .world_size = 2}); }),
      HasSubstr("rank is 2; with world_size 2"));
}

}  // namespace
}  // namespace accordion
