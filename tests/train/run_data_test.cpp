// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/run_data.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/fixtures.h"

namespace accordion {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using testing::message_of;
using testing::TemporaryFolder;

/// 80 bytes "a" to train on and 20 bytes "b" held out.
class TwoPartText : public ::testing::Test {
 protected:
  TwoPartText() {
    config_.data.path =
        folder_.write("text.txt", std::string(80, 'a') + std::string(20, 'b'));
    config_.data.validation_fraction = 0.2;
    config_.data.seq_len = 8;
    config_.train.batch_size = 5;
    config_.eval.every = 1;
  }

  TemporaryFolder folder_;
  TrainConfig config_;
};

TEST_F(TwoPartText, ShuffledOrderNeverReadsWhatIsHeldOut) {
  const RunData data = open_data(config_, 0, 1);
  for (std::int64_t step = 0; step < 20; ++step) {
    EXPECT_THAT(data.sampler.batch(step, 0).targets, Each('a'));
  }
  ASSERT_EQ(data.validation.size(), 1U);
  EXPECT_THAT(data.validation[0].inputs, ::testing::Contains('b').Times(16));
}

TEST_F(TwoPartText, StridedOrderWalksTheWholeText) {
  config_.data.order = "strided";
  config_.eval.every = 0;
  const RunData data = open_data(config_, 0, 1);
  EXPECT_THAT(data.sampler.batch(2, 0).targets, ::testing::Contains('b'));
  EXPECT_TRUE(data.validation.empty());
}

TEST_F(TwoPartText, PartShorterThanAWindowIsAnError) {
  config_.data.seq_len = 20;
  EXPECT_THAT(message_of([&] { open_data(config_, 0, 1); }),
              HasSubstr("held-out text is too short"));
  config_.data.seq_len = 80;
  EXPECT_THAT(message_of([&] { open_data(config_, 0, 1); }),
              HasSubstr("too short: 80 bytes to train on"));
}

TEST_F(TwoPartText, TokensOfAStepCountMicrobatches) {
  config_.train.grad_accumulation = 3;
  EXPECT_EQ(tokens_per_rank(config_), 5 * 3 * 8);
}

}  // namespace
}  // namespace accordion
