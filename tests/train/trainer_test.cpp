// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/trainer.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/data/fixtures.h"
#include "tests/data/sentence_piece_model.h"
#include "tests/train/train_ranks.h"

namespace accordion {
namespace {

namespace fs = std::filesystem;
using testing::expect_follows;
using testing::expect_ranks_pass;
using testing::fixture;
using testing::fresh_keys;
using ::testing::HasSubstr;
using testing::kTrainRank;
using testing::metrics_of;
using testing::read_file;
using testing::run_ranks;
using testing::TemporaryFolder;
using testing::train_in_ranks;
using testing::with;

TEST(Trainer, SameRunTwiceIsTheSameBitForBit) {
  const auto keys = with(fresh_keys(), {"train.steps=8", "train.batch_size=2",
                                        "fsdp.param_dtype=bf16"});
  const auto first = train_in_ranks(3, keys);
  ASSERT_EQ(first.size(), 8U);
  EXPECT_EQ(train_in_ranks(3, keys), first);
}

TEST(Trainer, FreshRunIsTheSameAtAnyWorldSizeAndAccumulation) {
  const auto keys = with(fresh_keys(), {"train.steps=5"});
  const auto single = train_in_ranks(1, with(keys, {"train.batch_size=6"}));
  expect_follows(train_in_ranks(2, with(keys, {"train.batch_size=3"})), single,
                 1e-5, 1e-4);
  expect_follows(train_in_ranks(3, with(keys, {"train.batch_size=1",
                                               "train.grad_accumulation=2"})),
                 single, 1e-5, 1e-4);
}

/// Packed documents whose lengths differ so much that ranks and microbatches
/// have from few to many targets.
std::vector<std::string> uneven_keys(const TemporaryFolder& folder) {
  std::string text;
  for (int i = 0; i < 60; ++i) {
    text += std::string(i % 7 == 0 ? 70 : 2 + i % 3,
                        static_cast<char>('a' + i % 26));
    text += '.';
    text += i % 7 == 0 ? "the end." : "";
  }
  return with(fresh_keys(),
              {"data.path=" + folder.write("text.txt", text).string(),
               "data.packing=documents", "data.document_separator=.",
               "data.cache_dir=" + (folder.path() / "cache").string(),
               "data.seq_len=48", "train.steps=4"});
}

TEST(Trainer, MeanIsOverTheTargetsOfAllRanksAndMicrobatches) {
  const TemporaryFolder folder;
  const auto keys = uneven_keys(folder);
  const auto single = train_in_ranks(1, with(keys, {"train.batch_size=4"}));
  expect_follows(train_in_ranks(2, with(keys, {"train.batch_size=2"})), single,
                 1e-5, 1e-4);
  expect_follows(train_in_ranks(2, with(keys, {"train.batch_size=1",
                                               "train.grad_accumulation=2"})),
                 single, 1e-5, 1e-4);
}

TEST(Trainer, EpochsEndTheRunAndTheScheduleAndStandInItsConfig) {
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  folder.write("a.txt", std::string(100, 'a'));
  folder.write("b.txt", std::string(61, 'b'));
  expect_ranks_pass(
      kTrainRank, 2,
      with(fresh_keys(),
           {"run.dir=" + run.string(), "data.seq_len=16", "train.epochs=2",
            "data.path=" + (folder.path() / "*.txt").string(),
            "data.validation_fraction=0", "train.batch_size=2",
            "schedule.name=linear", "schedule.min_lr_ratio=0.5",
            "optimizer.lr=1e-3"}));
  const auto lines = metrics_of(run);  // 2 * 10 samples, 4 a step
  ASSERT_EQ(lines.size(), 6U);
  EXPECT_DOUBLE_EQ(lines[4]["lr"], 5e-4);
  EXPECT_DOUBLE_EQ(lines[4]["epoch"], 1.6);
  const TrainConfig config = load_config(run / "config.toml");
  EXPECT_EQ(config.train.steps, 5);
  EXPECT_EQ(config.train.epochs, 0);
}

TEST(Trainer, SentencePieceTextIsTokenisedOnceAndSampledFrom) {
  const TemporaryFolder folder;
  const auto model = testing::train_sentence_piece(folder.path());
  const fs::path text = folder.write(
      "text.txt", std::string(testing::sentences()) + "\n\nA shard.\n\n" +
                      std::string(testing::sentences()));
  const auto keys = [&](const std::string& run) {
    return with(
        fresh_keys(),
        {"run.dir=" + (folder.path() / run).string(),
         "data.path=" + text.string(), "data.tokenizer=" + model.string(),
         "data.seq_len=16", "data.document_separator=\"\\n\\n\"",
         "train.steps=2", "train.batch_size=2", "eval.every=2",
         "data.validation_fraction=0.2", "sample.prompt=A shard is",
         "sample.length=4"});
  };
  const auto results = run_ranks(kTrainRank, 2, keys("one"));
  ASSERT_EQ(results[0].exit_code, 0) << results[0].output;
  EXPECT_THAT(results[0].output, HasSubstr("\nA shard is"));
  fs::directory_iterator caches(folder.path() / "token-cache");
  const fs::path cache = caches->path();
  EXPECT_EQ(++caches, fs::directory_iterator());
  const auto time = fs::last_write_time(cache);
  expect_ranks_pass(kTrainRank, 1, keys("two"));
  EXPECT_EQ(fs::last_write_time(cache), time);
}

TEST(Trainer, CacheThatCannotBeWrittenIsAnErrorOnEveryRank) {
  const TemporaryFolder folder;
  const fs::path file = folder.write("file", "");
  const auto results = run_ranks(
      kTrainRank, 2,
      with(uneven_keys(folder), {"data.cache_dir=" + (file / "x").string(),
                                 "run.dir=" + (folder.path() / "r").string()}));
  for (const auto& result : results) {
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.output,
                HasSubstr("Cannot make the folder of the cache"));
  }
}

// The first update is made of moments not yet rounded; later ones are off by
// some percent of an update at most, which changes a loss far less.
TEST(Trainer, Bf16MomentsAndTheirRoundingAreWhatTheKeysSay) {
  const std::vector<std::string> bf16 = {"train.steps=4",
                                         "optimizer.moments_dtype=bf16"};
  const auto exact = train_in_ranks(2, with(fresh_keys(), {"train.steps=4"}));
  const auto nearest = train_in_ranks(2, with(fresh_keys(), bf16));
  const auto stochastic = train_in_ranks(
      2,
      with(with(fresh_keys(), bf16), {"optimizer.stochastic_rounding=true"}));
  for (const auto& rounded : {nearest, stochastic}) {
    EXPECT_EQ(rounded[1].loss, exact[1].loss);
    EXPECT_NE(rounded[3].loss, exact[3].loss);
    expect_follows(rounded, exact, 1e-3, 0.05);
  }
  EXPECT_NE(nearest[3].loss, stochastic[3].loss);
}

TEST(Trainer, SeedAndDecayOfNormsChangeTheRun) {
  const auto keys = with(fresh_keys(), {"train.steps=3", "train.batch_size=2"});
  const auto base = train_in_ranks(1, keys);
  EXPECT_NE(train_in_ranks(1, with(keys, {"run.seed=2"}))[0], base[0]);
  // Strong decay, or a weight of about 1 would not show it in two steps.
  const auto strong = with(keys, {"optimizer.weight_decay=100"});
  EXPECT_NE(train_in_ranks(1, with(strong, {"optimizer.decay_norms=true"}))[2],
            train_in_ranks(1, strong)[2]);
}

TEST(Trainer, RunFolderHoldsConfigMetricsAndLogs) {
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  expect_ranks_pass(
      kTrainRank, 2,
      with(fresh_keys(), {"run.dir=" + run.string(), "train.steps=5",
                          "eval.every=2", "eval.sequences=5", "log.every=2"}));
  EXPECT_EQ(load_config(run / "config.toml").eval.sequences, 5);
  EXPECT_THAT(read_file(run / "log-rank0.txt"), HasSubstr("rank 0 of 2"));
  EXPECT_THAT(read_file(run / "log-rank1.txt"), HasSubstr("rank 1 of 2"));

  std::vector<std::string> kinds;
  const auto lines = metrics_of(run);
  for (const auto& line : lines) {
    kinds.push_back(line.contains("summary")    ? "summary"
                    : line.contains("val_loss") ? "validation"
                                                : "step");
  }
  EXPECT_THAT(kinds, ::testing::ElementsAre("step", "step", "validation",
                                            "step", "step", "validation",
                                            "step", "validation", "summary"));
  for (const char* key :
       {"step", "loss", "grad_norm", "lr", "ms", "tokens_per_s"}) {
    EXPECT_TRUE(lines[0].contains(key)) << key;
  }
  const auto& summary = lines.back();
  EXPECT_EQ(summary["final_loss"], lines[6]["loss"]);
  EXPECT_EQ(summary["val_loss"], lines[7]["val_loss"]);
  EXPECT_EQ(summary["rss_mib"].size(), 2U);
  EXPECT_GT(summary["pss_mib"][1], 10.0);
  EXPECT_GE(summary["rss_mib"][0], summary["pss_mib"][0]);
  EXPECT_GT(summary["tokens_per_s"], 0.0);
}

TEST(Trainer, ValidationIsTheSameAtAnyWorldSize) {
  std::vector<double> losses;
  for (const int world : {1, 2}) {
    const TemporaryFolder folder;
    const fs::path run = folder.path() / "run";
    expect_ranks_pass(
        kTrainRank, world,
        with(fresh_keys(),
             {"run.dir=" + run.string(), "train.steps=1", "eval.every=1",
              "eval.sequences=5",
              world == 1 ? "train.batch_size=4" : "train.batch_size=2"}));
    losses.push_back(metrics_of(run)[1]["val_loss"]);
  }
  EXPECT_NEAR(losses[0], losses[1], 1e-5);
  EXPECT_NEAR(losses[0], std::log(256.0), 0.3);
}

TEST(Trainer, SampleContinuesThePrompt) {
  const TemporaryFolder folder;
  const auto results = run_ranks(
      kTrainRank, 2,
      with(fresh_keys(), {"run.dir=" + (folder.path() / "run").string(),
                          "train.steps=1", "train.batch_size=1",
                          "sample.prompt=Permission is", "sample.length=5"}));
  ASSERT_EQ(results[0].exit_code, 0) << results[0].output;
  EXPECT_THAT(results[0].output, HasSubstr("\nPermission is"));
  EXPECT_EQ(results[1].output.find("Permission is"), std::string::npos);
}

TEST(Trainer, TimeBudgetEndsTheRunAndTheSchedule) {
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  expect_ranks_pass(
      kTrainRank, 2,
      with(fresh_keys(),
           {"run.dir=" + run.string(), "train.steps=0", "train.seconds=2",
            "train.batch_size=1", "schedule.name=cosine",
            "schedule.min_lr_ratio=0", "optimizer.lr=1e-3"}));
  const auto lines = metrics_of(run);
  ASSERT_GE(lines.size(), 4U);
  EXPECT_EQ(lines[0]["lr"], 1e-3);
  EXPECT_LT(lines[lines.size() - 2]["lr"], 5e-4);
}

TEST(Trainer, RunFolderThatIsTakenIsAnErrorOnEveryRank) {
  const TemporaryFolder folder;
  folder.write("metrics.jsonl", "{}\n");
  const auto results = run_ranks(
      kTrainRank, 2, with(fresh_keys(), {"run.dir=" + folder.path().string()}));
  for (const auto& result : results) {
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.output, HasSubstr("never overwritten"));
  }
  EXPECT_EQ(read_file(folder.path() / "metrics.jsonl"), "{}\n");
}

TEST(Trainer, LossThatIsNotFiniteIsAnErrorWithAdvice) {
  const TemporaryFolder folder;
  const auto results = run_ranks(
      kTrainRank, 1,
      with(fresh_keys(),
           {"run.dir=" + (folder.path() / "run").string(), "optimizer.lr=1e30",
            "train.steps=20", "train.batch_size=1"}));
  EXPECT_EQ(results[0].exit_code, 1);
  EXPECT_THAT(results[0].output, HasSubstr("Lower optimizer.lr"));
}

/// A learning rate that ruins the weights in its first step.
std::vector<std::string> ruined(const fs::path& run,
                                const std::vector<std::string>& more) {
  return with(
      with(fresh_keys(), {"run.dir=" + run.string(), "optimizer.lr=1e30",
                          "train.steps=20", "train.batch_size=1"}),
      more);
}

TEST(Trainer, StepsWithoutAFiniteGradientAreSkippedUpToABound) {
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  const auto results =
      run_ranks(kTrainRank, 2,
                ruined(run, {"train.nonfinite=skip", "train.max_skips=3"}));
  for (const auto& result : results) {
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.output, HasSubstr("The 3 steps before were skipped"));
    EXPECT_THAT(result.output,
                HasSubstr("each output is finite, and the first unit whose "
                          "gradient is not is the root"));
  }
  int skipped = 0;
  for (const auto& line : metrics_of(run)) {
    skipped += line.contains("skipped") ? 1 : 0;
  }
  EXPECT_EQ(skipped, 3);
}

TEST(Trainer, StepsInBackwardAreSkippedFromTheUnitAtFaultOn) {
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  const auto results =
      run_ranks(kTrainRank, 2,
                ruined(run, {"train.nonfinite=skip", "train.max_skips=3",
                             "memory.optimizer_in_backward=true"}));
  for (const auto& result : results) {
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.output, HasSubstr("The 3 steps before were skipped"));
    EXPECT_THAT(result.output,
                HasSubstr("each output is finite, and the first unit whose "
                          "gradient is not is 'model.layers.3'"));
  }
}

TEST(Trainer, GradientsThatAreNotFiniteMayBeAllowed) {
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  expect_ranks_pass(kTrainRank, 1,
                    ruined(run, {"train.nonfinite=allow", "train.steps=4"}));
  EXPECT_EQ(metrics_of(run).back()["steps"], 4);
}

TEST(Trainer, ModelThatDoesNotFitTheDataIsAnError) {
  const TemporaryFolder folder;
  std::string model = read_file(fixture("tiny.json"));
  const auto at = model.find("\"vocab_size\": 256");
  ASSERT_NE(at, std::string::npos);
  const auto small = folder.write(
      "small.json", std::string(model).replace(at, 17, "\"vocab_size\": 99"));
  const auto config = [&](const std::vector<std::string>& more) {
    return parse_config("", "test.toml", with(fresh_keys(), more));
  };
  EXPECT_THAT(testing::message_of([&] {
                train(config({"model.config=" + small.string()}), {});
              }),
              HasSubstr("vocab_size 99"));
  EXPECT_THAT(
      testing::message_of([&] { train(config({"data.seq_len=2000"}), {}); }),
      HasSubstr("max_position_embeddings 1024"));
}

}  // namespace
}  // namespace accordion
