// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/run_data.h"

#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/fixtures.h"
#include "tests/data/sentence_piece_model.h"
#include "tests/data/token_bytes.h"

namespace accordion {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using testing::message_of;
using testing::TemporaryFolder;

/// 80 bytes "a" to train on and 20 bytes "b" held out.
class RunDataOf : public ::testing::Test {
 protected:
  RunDataOf() {
    config_.data.path = {
        folder_.write("text.txt", std::string(80, 'a') + std::string(20, 'b'))
            .string()};
    config_.data.validation_fraction = 0.2;
    config_.data.seq_len = 8;
    config_.data.cache_dir = (folder_.path() / "cache").string();
    config_.model.config = "model.json";
    config_.train.batch_size = 5;
    config_.eval.every = 1;
  }

  RunData open(const DataReader& reader = {}) {
    return open_data(config_, *tokenizer_, reader);
  }
  std::string check_error(std::int64_t vocab_size) {
    return message_of([&] { check_data(config_, *tokenizer_, vocab_size); });
  }
  void use_token_file() {
    config_.data.path = {
        folder_
            .write("a.bin", testing::bytes_of(std::vector<std::uint16_t>(
                                100, std::uint16_t{7})))
            .string()};
    config_.data.token_dtype = "uint16";
  }

  TemporaryFolder folder_;
  TrainConfig config_;
  std::unique_ptr<const Tokenizer> tokenizer_ = open_tokenizer("bytes");
};

TEST_F(RunDataOf, ShuffledOrderNeverReadsWhatIsHeldOut) {
  const RunData data = open();
  for (std::int64_t step = 0; step < 20; ++step) {
    EXPECT_THAT(data.sampler.batch(step, 0).targets, Each('a'));
  }
  ASSERT_EQ(data.validation.size(), 1U);
  EXPECT_THAT(data.validation[0].inputs, ::testing::Contains('b').Times(16));
}

TEST_F(RunDataOf, StridedOrderWalksTheWholeText) {
  config_.data.order = "strided";
  config_.eval.every = 0;
  const RunData data = open();
  EXPECT_THAT(data.sampler.batch(2, 0).targets, ::testing::Contains('b'));
  EXPECT_TRUE(data.validation.empty());
}

TEST_F(RunDataOf, TokensOfAStepCountMicrobatches) {
  config_.train.grad_accumulation = 3;
  EXPECT_EQ(tokens_per_rank(config_), 5 * 3 * 8);
}

// 79 targets in windows of 8: 9 samples an epoch, 10 a step.
TEST_F(RunDataOf, EpochsBecomeSteps) {
  config_.train.steps = 0;
  config_.train.epochs = 3;
  const RunData data = open({.rank = 0, .world_size = 2});
  const TrainConfig resolved = with_steps(config_, data.sampler);
  EXPECT_EQ(resolved.train.steps, 3);
  EXPECT_EQ(resolved.train.epochs, 0);
  EXPECT_THAT(describe(data, resolved),
              HasSubstr("100 tokens in 1 file(s); 9 samples an epoch, 10 a "
                        "step; 3 steps are 3.33 epochs"));
  config_.schedule.warmup_steps = 4;
  EXPECT_THAT(message_of([&] { with_steps(config_, data.sampler); }),
              HasSubstr("train.epochs = 3: 'schedule.warmup_steps' is 4, more "
                        "than 'train.steps' (3)"));
}

TEST_F(RunDataOf, GivenStepsStay) {
  const TrainConfig resolved = with_steps(config_, open().sampler);
  EXPECT_EQ(to_toml(resolved), to_toml(config_));
}

TEST_F(RunDataOf, VocabularyThatTheModelLacksIsAnErrorThatNamesBothSizes) {
  EXPECT_EQ(check_error(256), "");
  EXPECT_THAT(check_error(99),
              HasSubstr("has vocab_size 99, but data.tokenizer \"bytes\" "
                        "needs at least 256"));
  const auto model = testing::train_sentence_piece(folder_.path());
  config_.data.tokenizer = model.string();
  tokenizer_ = open_tokenizer(config_.data.tokenizer);
  EXPECT_EQ(check_error(100), "");
  EXPECT_THAT(check_error(99), HasSubstr("needs at least 100"));
}

TEST_F(RunDataOf, TokenFilesNeedATokenizerForThePromptOnly) {
  use_token_file();
  EXPECT_EQ(check_error(50), "");
  config_.sample.prompt = "In the";
  EXPECT_THAT(check_error(50), HasSubstr("has vocab_size 50"));
  EXPECT_EQ(check_error(256), "");
  EXPECT_THAT(check_error(50000),
              HasSubstr("sample.prompt is text, but data.path holds token"));
}

TEST_F(RunDataOf, TokenBeyondTheModelsVocabularyIsAnErrorWhenItIsRead) {
  use_token_file();
  EXPECT_EQ(check_error(7), "");
  EXPECT_THAT(message_of([&] { open({.vocab_size = 7}); }),
              HasSubstr("has id 7 at token"));
}

TEST_F(RunDataOf, CachesLieBesideTheRunFolder) {
  config_.data.packing = "documents";
  config_.data.cache_dir = "";
  config_.run.dir = (folder_.path() / "runs" / "one").string();
  open();
  EXPECT_TRUE(std::filesystem::exists(folder_.path() / "runs" / "token-cache"));
}

}  // namespace
}  // namespace accordion
