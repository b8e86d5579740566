// SPDX-License-Identifier: BSD-3-Clause
// A run that was ended and goes on equals one that never was.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "accordion/checkpoint/checkpoint_folder.h"
#include "accordion/train/run_position.h"
#include "accordion/train/trainer.h"
#include "tests/data/fixtures.h"
#include "tests/train/train_ranks.h"

namespace accordion {
namespace {

namespace fs = std::filesystem;
using testing::expect_follows;
using testing::expect_ranks_pass;
using ::testing::HasSubstr;
using testing::kTrainRank;
using testing::measured;
using testing::parity_keys;
using testing::read_file;
using testing::run_ranks;
using testing::Step;
using testing::TemporaryFolder;
using testing::with;

using Keys = std::vector<std::string>;

/// A rank of a run that goes on, if there is one to go on.
const testing::RankProgram kResumingRank(
    "resuming", [](const testing::RankContext& context) {
      const TrainConfig config =
          parse_config("", "test.toml", context.arguments);
      train(config, Rendezvous::from_environment(), "auto");
    });

/// Shuffled data, an epoch of which takes a few steps, and fresh weights.
Keys keys_of(const fs::path& run, const Keys& more) {
  return with(
      with(parity_keys("tiny"),
           {"run.dir=" + run.string(), "model.init=", "data.order=shuffled",
            "data.seq_len=32", "data.validation_fraction=0.9",
            "optimizer.lr=1e-2", "checkpoint.every=3"}),
      more);
}

/// How far a run has come, but for the time it took.
RunPosition position_of_newest(const fs::path& run) {
  RunPosition position =
      read_run_position(complete_checkpoints(run / "checkpoints").back().path);
  position.elapsed_seconds = 0.0;
  return position;
}

struct Variant {
  std::string name;
  Keys keys;
};

class Resume : public ::testing::TestWithParam<Variant> {};

TEST_P(Resume, ASecondAndThirdTimeIsBitForBitTheUnbrokenRun) {
  const TemporaryFolder folder;
  const fs::path unbroken = folder.path() / "unbroken";
  const fs::path broken = folder.path() / "broken";
  expect_ranks_pass(
      kTrainRank, 2,
      keys_of(unbroken, with(GetParam().keys, {"train.steps=11"})));
  for (const char* steps : {"4", "5", "8", "11"}) {
    expect_ranks_pass(
        kResumingRank, 2,
        keys_of(broken,
                with(GetParam().keys, {std::string("train.steps=") + steps})));
  }
  EXPECT_EQ(measured(broken), measured(unbroken));
  EXPECT_EQ(position_of_newest(broken), position_of_newest(unbroken));
  EXPECT_EQ(read_file(broken / "checkpoints" / "latest"), "step-00000011\n");
  EXPECT_EQ(complete_checkpoints(broken / "checkpoints").size(), 2U);
}

INSTANTIATE_TEST_SUITE_P(
    All, Resume,
    ::testing::Values(
        Variant{"fp32", {"train.batch_size=2"}},
        Variant{"bf16_accumulated_across_epochs",
                {"fsdp.param_dtype=bf16", "train.batch_size=64",
                 "train.grad_accumulation=3"}},
        Variant{"no_shard_in_the_foreground",
                {"fsdp.strategy=no_shard", "checkpoint.async=false",
                 "train.batch_size=2", "optimizer.decay_norms=false"}},
        Variant{"optimizer_in_backward",
                {"memory.optimizer_in_backward=true", "optimizer.clip_norm=0.5",
                 "train.batch_size=2"}},
        Variant{"offloaded",
                {"memory.offload=optimizer", "checkpoint.async=false",
                 "train.batch_size=2"}},
        Variant{"offloaded_with_parameters",
                {"memory.offload=parameters", "checkpoint.async=false",
                 "train.batch_size=2", "train.grad_accumulation=2"}},
        Variant{"bf16_moments_rounded_stochastically",
                {"optimizer.moments_dtype=bf16",
                 "optimizer.stochastic_rounding=true", "train.batch_size=2"}},
        // Halved in the first steps, then doubled.
        Variant{"fp16_looking_for_a_loss_scale",
                {"fsdp.param_dtype=fp16", "train.batch_size=2",
                 "optimizer.loss_scale=16777216",
                 "optimizer.loss_scale_interval=2"}},
        Variant{"watched_for_spikes",
                {"train.spike=error", "train.spike_factor=5",
                 "train.batch_size=2"}}),
    [](const ::testing::TestParamInfo<Variant>& info) {
      return info.param.name;
    });

TEST(ResumeElsewhere, OtherRanksAndStrategiesSeeTheSameSamplesInTheSameOrder) {
  const TemporaryFolder folder;
  const fs::path unbroken = folder.path() / "unbroken";
  const fs::path moved = folder.path() / "moved";
  // Global batches of 12 samples throughout.
  expect_ranks_pass(
      kTrainRank, 2,
      keys_of(unbroken, {"train.steps=12", "train.batch_size=6"}));
  expect_ranks_pass(kTrainRank, 2,
                    keys_of(moved, {"train.steps=3", "train.batch_size=6"}));
  expect_ranks_pass(kResumingRank, 3,
                    keys_of(moved, {"train.steps=6", "train.batch_size=4"}));
  expect_ranks_pass(
      kResumingRank, 1,
      keys_of(moved, {"train.steps=9", "train.batch_size=4",
                      "train.grad_accumulation=3", "fsdp.strategy=no_shard"}));
  expect_ranks_pass(
      kResumingRank, 4,
      keys_of(moved, {"train.steps=12", "train.batch_size=3",
                      "fsdp.strategy=hybrid", "fsdp.replicas=2"}));
  // Sums over ranks are taken in another order.
  expect_follows(measured(moved), measured(unbroken), 1e-5, 1e-4);
}

TEST(ResumeElsewhere, AnotherGlobalBatchGoesOnWithTheSamplesNotReadYet) {
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  expect_ranks_pass(kTrainRank, 2,
                    keys_of(run, {"train.steps=3", "train.batch_size=2"}));
  const auto results = run_ranks(
      kResumingRank, 4, keys_of(run, {"train.steps=5", "train.batch_size=3"}));
  for (const auto& result : results) {
    EXPECT_EQ(result.exit_code, 0) << result.output;
  }
  EXPECT_THAT(results[0].output,
              HasSubstr("changed since step-00000003 was saved:\n"
                        "  train.steps = 5, was 3\n"
                        "  train.batch_size = 3, was 2\n"));
  std::vector<double> epochs;
  std::ifstream file(run / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json.contains("epoch")) {
      epochs.push_back(json["epoch"].get<double>());
    }
  }
  ASSERT_EQ(epochs.size(), 5U);
  const double sample = epochs[1] / 4;
  EXPECT_NEAR(epochs[3], 12 * sample, sample / 1e3);
  EXPECT_NEAR(epochs[4], 24 * sample, sample / 1e3);
}

TEST(ResumeElsewhere, ARunThatIsDoneSaysSoAndIsLeftAlone) {
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  const Keys keys = keys_of(run, {"train.steps=2", "train.batch_size=2"});
  expect_ranks_pass(kTrainRank, 2, keys);
  const std::string before = read_file(run / "metrics.jsonl");
  const auto results = run_ranks(kResumingRank, 2, keys);
  EXPECT_EQ(results[0].exit_code, 0);
  EXPECT_THAT(results[0].output, HasSubstr("has done its 2 steps"));
  EXPECT_EQ(read_file(run / "metrics.jsonl"), before);
}

TEST(ResumeElsewhere, AnotherModelIsAnErrorThatNamesWhatDiffers) {
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  expect_ranks_pass(kTrainRank, 2,
                    keys_of(run, {"train.steps=2", "train.batch_size=2"}));
  const auto results = run_ranks(
      kResumingRank, 2,
      keys_of(run,
              {"train.steps=4", "train.batch_size=2",
               "model.config=" + testing::fixture("tiny-gqa.json").string()}));
  for (const auto& result : results) {
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.output, HasSubstr("k_proj"));
    EXPECT_THAT(result.output, HasSubstr("but the module has"));
  }
}

// ---- Going back ------------------------------------------------------------

/// Text that is easy to learn, but for one place.
fs::path text_with_noise(const TemporaryFolder& folder) {
  std::string text(40000, 'a');
  for (std::size_t i = 8000; i < 8400; ++i) {
    text[i] = static_cast<char>('b' + (i * i * 7919) % 20);
  }
  return folder.write("noise.txt", text);
}

TEST(RollBack, GoesBackToACheckpointAndOnBehindTheSamplesAtFault) {
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  expect_ranks_pass(
      kTrainRank, 2,
      keys_of(run,
              {"data.path=" + text_with_noise(folder).string(),
               "data.order=strided", "data.validation_fraction=0",
               "train.batch_size=4", "train.steps=50", "train.spike=rollback",
               "train.spike_factor=3", "train.max_rollbacks=8"}));
  const auto steps = measured(run);  // each once, in order
  EXPECT_EQ(steps.size(), 50U);
  for (std::size_t i = 25; i < steps.size(); ++i) {
    EXPECT_LT(steps[i].loss, 1.0) << "step " << i;
  }
  EXPECT_THAT(read_file(run / "log-rank1.txt"),
              HasSubstr("more than 3 times the mean before it"));
}

TEST(RollBack, IsBoundedAndSaysWhatWasAtFault) {
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  const auto results =
      run_ranks(kTrainRank, 2,
                keys_of(run, {"train.batch_size=2", "train.steps=20",
                              "optimizer.lr=1e30", "train.nonfinite=rollback",
                              "checkpoint.every=1", "train.max_rollbacks=2"}));
  for (const auto& result : results) {
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.output,
                HasSubstr("went back to a checkpoint 2 times, as often as "
                          "train.max_rollbacks allows"));
    EXPECT_THAT(result.output,
                HasSubstr("each output is finite, and the first unit whose "
                          "gradient is not is the root"));
  }
  EXPECT_THAT(read_file(run / "log-rank1.txt"),
              HasSubstr("what this rank did last"));
}

}  // namespace
}  // namespace accordion
