// SPDX-License-Identifier: BSD-3-Clause
// Runs in fp16: how they find a loss scale, and when they end.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/data/fixtures.h"
#include "tests/train/train_ranks.h"

namespace accordion {
namespace {

namespace fs = std::filesystem;
using testing::expect_ranks_pass;
using testing::fresh_keys;
using ::testing::HasSubstr;
using testing::kTrainRank;
using testing::metrics_of;
using testing::read_file;
using testing::run_ranks;
using testing::TemporaryFolder;
using testing::with;

/// A run in fp16 on shuffled data, from fresh weights.
std::vector<std::string> fp16_keys(const fs::path& run,
                                   const std::vector<std::string>& more) {
  return with(with(fresh_keys(), {"train.batch_size=2", "fsdp.param_dtype=fp16",
                                  "run.dir=" + run.string()}),
              more);
}

TEST(LossScale, IsLookedForAndWhatItSkipsIsReported) {
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  expect_ranks_pass(kTrainRank, 2,
                    fp16_keys(run, {"train.steps=16", "train.max_skips=14",
                                    "optimizer.loss_scale=16777216",
                                    "optimizer.loss_scale_interval=2",
                                    "sample.prompt=The", "sample.length=4"}));
  const auto lines = metrics_of(run);
  ASSERT_EQ(lines.size(), 17U);
  double scale = 16777216;
  std::int64_t finite = 0;
  std::int64_t skipped = 0;
  for (std::size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(lines[i]["loss_scale"].get<double>(), scale) << i;
    EXPECT_TRUE(lines[i]["loss"].is_number()) << i;
    if (lines[i].contains("skipped")) {
      scale /= 2;
      finite = 0;
      ++skipped;
    } else if (++finite == 2) {
      scale *= 2;
      finite = 0;
    }
  }
  EXPECT_GE(skipped, 3);
  EXPECT_LE(skipped, 13);
  EXPECT_EQ(lines.back()["skipped_steps"], skipped);
  for (const char* log : {"log-rank0.txt", "log-rank1.txt"}) {
    EXPECT_THAT(read_file(run / log),
                HasSubstr("The gradient at step 0 overflowed at loss scale "
                          "16777216; skipped"));
  }
}

TEST(LossScale, OverflowsInARowAreBoundedAndTheirUnitIsNamed) {
  const TemporaryFolder folder;
  const auto results = run_ranks(
      kTrainRank, 2,
      fp16_keys(folder.path() / "run", {"train.steps=20", "train.max_skips=3",
                                        "optimizer.loss_scale=4294967296"}));
  for (const auto& result : results) {
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.output,
                HasSubstr("gradient at step 3 overflowed at loss scale "
                          "536870912, and the 3 steps before were"));
    EXPECT_THAT(result.output, HasSubstr("Backward first met it in the root."));
    EXPECT_THAT(result.output, HasSubstr("fsdp.param_dtype = \"bf16\""));
  }
}

// No scale helps where forward itself is not finite: train.nonfinite decides.
TEST(LossScale, DoesNotFollowALossThatIsNotFinite) {
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  const auto results =
      run_ranks(kTrainRank, 2,
                fp16_keys(run, {"train.steps=20", "optimizer.lr=1e30",
                                "train.nonfinite=skip", "train.max_skips=3"}));
  for (const auto& result : results) {
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.output, HasSubstr("is not finite (norm "));
    EXPECT_THAT(result.output,
                HasSubstr("the first unit whose output is not finite is"));
    EXPECT_THAT(result.output, HasSubstr("The 3 steps before were skipped"));
  }
  for (const auto& line : metrics_of(run)) {
    EXPECT_EQ(line["loss_scale"], 65536);
  }
}

}  // namespace
}  // namespace accordion
