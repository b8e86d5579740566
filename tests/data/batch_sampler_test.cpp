// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/data/batch_sampler.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/fixtures.h"
#include "tests/data/memory_tokens.h"

namespace accordion {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;

/// Token j is a formula in j; 251 is prime, so windows are told apart.
class NumberedText : public testing::MemoryTokens {
 public:
  explicit NumberedText(std::int64_t size)
      : MemoryTokens(testing::numbered_tokens(size, 251)) {}
  [[nodiscard]] StreamWindows windows(std::int64_t seq_len) const {
    return {range(), seq_len};
  }
};

TEST(BatchSampler, StridedStartsWhereTheSchemeSays) {
  const std::int64_t seq = 16, batch = 3;
  const int world = 2, rank = 1;
  const NumberedText text(1000);
  const StreamWindows windows = text.windows(seq);
  const BatchSampler sampler(windows, {.order = SampleOrder::Strided,
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
  const NumberedText text(5000);
  const StreamWindows windows = text.windows(8);
  BatchSamplerOptions whole = {
      .order = GetParam(), .batch_size = 36, .seed = 9};
  const BatchSampler single(windows, whole);
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
            const Batch batch = BatchSampler(windows, part).batch(step, micro);
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
  const NumberedText text(1030);
  const StreamWindows windows = text.windows(10);
  const BatchSampler sampler(windows, {.seed = 4});
  const std::int64_t samples = sampler.samples_per_epoch();
  ASSERT_EQ(samples, 102);
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<std::int64_t> starts;
    for (std::int64_t g = 0; g < samples; ++g) {
      const std::int64_t start = sampler.position_of(epoch * samples + g);
      ASSERT_GE(start, 0);
      ASSERT_LE(start + 11, 1030);
      starts.insert(start);
    }
    EXPECT_EQ(static_cast<std::int64_t>(starts.size()), samples);
  }
}

TEST(BatchSampler, EpochsDifferInOrderAndPhase) {
  const NumberedText text(4001);
  const StreamWindows windows = text.windows(40);
  const BatchSampler sampler(windows, {.seed = 4});
  std::set<std::int64_t> phases;
  std::set<std::int64_t> first_windows;
  for (std::int64_t epoch = 0; epoch < 8; ++epoch) {
    const auto start = sampler.position_of(epoch * sampler.samples_per_epoch());
    phases.insert(start % 40);
    first_windows.insert(start / 40);
  }
  EXPECT_GE(phases.size(), 5U);
  EXPECT_GE(first_windows.size(), 5U);
}

TEST(BatchSampler, ShuffledDependsOnTheSeed) {
  const NumberedText text(4001);
  const StreamWindows windows = text.windows(40);
  const BatchSampler one(windows, {.seed = 1});
  const BatchSampler again(windows, {.seed = 1});
  const BatchSampler two(windows, {.seed = 2});
  EXPECT_EQ(one.batch(3, 0).inputs, again.batch(3, 0).inputs);
  EXPECT_NE(one.batch(3, 0).inputs, two.batch(3, 0).inputs);
}

TEST(BatchSampler, ShortestTextHoldsOneWindow) {
  const NumberedText text(10);
  const StreamWindows windows = text.windows(8);
  const BatchSampler sampler(windows, {});
  for (std::int64_t step = 0; step < 20; ++step) {
    EXPECT_LE(sampler.position_of(step), 1);
    EXPECT_EQ(sampler.batch(step, 0).inputs.size(), 8U);
  }
}

// What runs of earlier versions read must stay what a resumed run reads.
TEST(BatchSampler, OrdersAreWhatTheyAlwaysWere) {
  const NumberedText text(1030);
  const StreamWindows windows = text.windows(10);
  const auto positions = [&](SampleOrder order, std::int64_t first) {
    const BatchSampler sampler(windows, {.order = order, .seed = 4});
    std::vector<std::int64_t> positions;
    for (std::int64_t g = first; g < first + 8; ++g) {
      positions.push_back(sampler.position_of(g));
    }
    return positions;
  };
  EXPECT_THAT(positions(SampleOrder::Strided, 100),
              ElementsAre(1000, 1010, 1, 11, 21, 31, 41, 51));
  EXPECT_THAT(positions(SampleOrder::Shuffled, 0),
              ElementsAre(263, 453, 633, 913, 93, 283, 793, 493));
  EXPECT_THAT(positions(SampleOrder::Shuffled, 100),
              ElementsAre(953, 653, 864, 934, 474, 104, 614, 404));
}

TEST(BatchSampler, TellsEpochAndSampleOfAStep) {
  const NumberedText text(101);
  const StreamWindows windows = text.windows(10);  // 10 samples
  const BatchSampler sampler(
      windows, {.batch_size = 2, .grad_accumulation = 2, .world_size = 1});
  EXPECT_EQ(sampler.samples_per_step(), 4);
  EXPECT_EQ(sampler.epoch_of(0).epoch, 0);
  EXPECT_EQ(sampler.epoch_of(2).sample, 8);
  EXPECT_EQ(sampler.epoch_of(3).epoch, 1);
  EXPECT_EQ(sampler.epoch_of(3).sample, 2);
}

TEST(BatchSampler, LastStepOfEpochsTakesWhatIsMissingFromTheNext) {
  const NumberedText text(101);
  const StreamWindows windows = text.windows(10);
  const auto steps = [&](std::int64_t batch, std::int64_t epochs) {
    return BatchSampler(windows, {.batch_size = batch}).steps_of_epochs(epochs);
  };
  EXPECT_EQ(steps(5, 1), 2);
  EXPECT_EQ(steps(4, 1), 3);
  EXPECT_EQ(steps(4, 2), 5);
  EXPECT_EQ(steps(30, 1), 1);
  // A step that begins in one epoch ends in the next: nothing is dropped.
  const BatchSampler four(windows, {.batch_size = 4, .seed = 3});
  const BatchSampler one(windows, {.batch_size = 1, .seed = 3});
  std::vector<std::int64_t> singles;
  for (std::int64_t g = 8; g < 12; ++g) {
    const Batch batch = one.batch(g, 0);
    singles.insert(singles.end(), batch.inputs.begin(), batch.inputs.end());
  }
  EXPECT_EQ(four.batch(2, 0).inputs, singles);
}

/// A part of a run, with ranks and batches of its own.
struct Part {
  int world_size;
  std::int64_t batch_size;
  std::int64_t grad_accumulation;
  std::int64_t steps;
};

/// How far the run has come.
struct Progress {
  std::int64_t step = 0;
  std::int64_t samples = 0;
  EpochPosition epoch = {};
  std::vector<std::int64_t> read = {};  ///< tokens, in the order of the run
};

void read_part(const StreamWindows& windows, SampleOrder order,
               const Part& part, Progress& progress) {
  std::vector<BatchSampler> ranks;
  for (int rank = 0; rank < part.world_size; ++rank) {
    ranks.push_back({windows,
                     {.order = order,
                      .batch_size = part.batch_size,
                      .grad_accumulation = part.grad_accumulation,
                      .rank = rank,
                      .world_size = part.world_size,
                      .seed = 9}});
    ranks.back().continue_from(progress.step, progress.samples);
  }
  const std::int64_t last = progress.step + part.steps;
  for (; progress.step < last; ++progress.step) {
    for (std::int64_t micro = 0; micro < part.grad_accumulation; ++micro) {
      for (const BatchSampler& rank : ranks) {
        const Batch batch = rank.batch(progress.step, micro);
        progress.read.insert(progress.read.end(), batch.inputs.begin(),
                             batch.inputs.end());
      }
    }
  }
  progress.samples = ranks[0].samples_before(last);
  progress.epoch = ranks[0].epoch_of(last);
}

class ResumedRun : public ::testing::TestWithParam<SampleOrder> {};

TEST_P(ResumedRun, ReadsOnInTheSameOrderWithOtherRanksAndBatches) {
  const NumberedText text(1030);
  const StreamWindows windows = text.windows(10);  // 102 samples
  Progress progress;
  for (const Part& part :
       {Part{2, 3, 1, 7}, Part{3, 1, 5, 4}, Part{1, 7, 2, 0}, Part{1, 7, 2, 9},
        Part{4, 2, 1, 1}, Part{2, 3, 1, 8}}) {
    read_part(windows, GetParam(), part, progress);
    EXPECT_EQ(std::ssize(progress.read), progress.samples * 10);
    EXPECT_EQ(progress.epoch.epoch, progress.samples / 102);
    EXPECT_EQ(progress.epoch.sample, progress.samples % 102);
  }
  EXPECT_EQ(progress.step, 29);
  EXPECT_EQ(progress.samples, 42 + 60 + 126 + 8 + 48);  // over two epochs
  const BatchSampler unbroken(
      windows,
      {.order = GetParam(), .batch_size = progress.samples, .seed = 9});
  EXPECT_EQ(progress.read, unbroken.batch(0, 0).inputs);
}

INSTANTIATE_TEST_SUITE_P(BatchSampler, ResumedRun,
                         ::testing::Values(SampleOrder::Strided,
                                           SampleOrder::Shuffled));

TEST(BatchSampler, ResumedRunCountsStepsOfEpochsFromWhatWasRead) {
  const NumberedText text(101);
  const StreamWindows windows = text.windows(10);  // 10 samples
  BatchSampler sampler(windows, {.batch_size = 4});
  sampler.continue_from(3, 6);
  EXPECT_EQ(sampler.samples_before(3), 6);
  EXPECT_EQ(sampler.samples_before(4), 10);
  EXPECT_EQ(sampler.steps_of_epochs(1), 4);
  EXPECT_EQ(sampler.steps_of_epochs(2), 7);
  sampler.continue_from(9, 35);
  EXPECT_EQ(sampler.steps_of_epochs(1), 9) << "it has read more already";
}

TEST(BatchSampler, ResumedRunCannotBeginBeforeItsStart) {
  const NumberedText text(100);
  const StreamWindows windows = text.windows(10);
  BatchSampler sampler(windows, {});
  sampler.continue_from(3, 6);
  EXPECT_THAT(message_of([&] { sampler.continue_from(-1, 6); }),
              HasSubstr("first_step is -1 and first_sample 6"));
  EXPECT_THAT(message_of([&] { sampler.continue_from(1, -6); }),
              HasSubstr("first_step is 1 and first_sample -6"));
  EXPECT_EQ(sampler.samples_before(3), 6) << "it is as it was";
}

TEST(BatchSampler, CountsTargetsThatAreNotMasked) {
  Batch batch = Batch::without_targets(2, 3);
  EXPECT_EQ(batch.num_targets(), 0);
  batch.row(1, 3).targets[2] = 7;
  EXPECT_EQ(batch.num_targets(), 1);
  EXPECT_EQ(batch.targets[5], 7);
}

TEST(BatchSampler, OptionsOutOfRangeAreErrors) {
  const NumberedText text(100);
  const StreamWindows windows = text.windows(10);
  EXPECT_THAT(message_of([&] { BatchSampler(windows, {.batch_size = 0}); }),
              HasSubstr("batch_size is 0"));
  EXPECT_THAT(
      message_of([&] { BatchSampler(windows, {.rank = 2, .world_size = 2}); }),
      HasSubstr("rank is 2; with world_size 2"));
}

}  // namespace
}  // namespace accordion
