// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/metrics.h"

#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/data/fixtures.h"

namespace accordion {
namespace {

using testing::read_file;
using testing::TemporaryFolder;

std::vector<nlohmann::json> lines_of(const std::filesystem::path& file) {
  std::istringstream text(read_file(file));
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(text, line);) {
    lines.push_back(nlohmann::json::parse(line));
  }
  return lines;
}

TEST(Metrics, StepLineKeepsLossAndNormExactly) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  MetricsWriter writer(file);
  const double loss = 5.505534648895264;
  const double norm = 1.0 / 3.0;
  writer.write(StepMetrics{.step = 3,
                           .loss = loss,
                           .grad_norm = norm,
                           .lr = 3e-4,
                           .ms = 12.3456,
                           .tokens_per_s = 100.0});
  // Still open: a line must be there at once.
  const auto lines = lines_of(file);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0]["step"], 3);
  EXPECT_EQ(lines[0]["loss"].get<double>(), loss);
  EXPECT_EQ(lines[0]["grad_norm"].get<double>(), norm);
  EXPECT_EQ(lines[0]["lr"].get<double>(), 3e-4);
  EXPECT_EQ(lines[0]["ms"].get<double>(), 12.35);
  EXPECT_EQ(lines[0]["tokens_per_s"].get<double>(), 100.0);
  EXPECT_FALSE(lines[0].contains("skipped"));
  EXPECT_FALSE(lines[0].contains("loss_scale"));
  EXPECT_FALSE(lines[0].contains("memory"));
}

TEST(Metrics, StepThatWasSkippedSaysSoAndItsNanIsNull) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  MetricsWriter writer(file);
  writer.write(StepMetrics{
      .grad_norm = std::nan(""), .skipped = true, .loss_scale = 32768.0});
  const auto lines = lines_of(file);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0]["loss_scale"], 32768.0);
  EXPECT_EQ(lines[0]["skipped"], true);
  EXPECT_TRUE(lines[0]["grad_norm"].is_null());
}

TEST(Metrics, StepLineHasWhatWasHeldAtMostByKindAndThePhases) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  MetricsWriter writer(file);
  StepMetrics metrics;
  metrics.memory.add(MemoryPhase::Forward, {.activations = 1 << 20});
  metrics.memory.add(MemoryPhase::Backward,
                     {.gradients = 1 << 19, .activations = 3 << 20});
  writer.write(metrics);
  const auto memory = lines_of(file).at(0)["memory"];
  EXPECT_EQ(memory["phase"], "backward");
  EXPECT_EQ(memory["total"], 3.5);
  EXPECT_EQ(memory["activations"], 3.0);
  EXPECT_EQ(memory["gradients"], 0.5);
  EXPECT_EQ(memory["optimizer"], 0.0);
  EXPECT_EQ(memory["by_phase"]["forward"], 1.0);
  EXPECT_EQ(memory["by_phase"]["backward"], 3.5);
  EXPECT_EQ(memory["by_phase"]["rest"], 0.0);
}

TEST(Metrics, SummaryHoldsTheMemoryOfEachRank) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  MetricsWriter writer(file);
  writer.write(ValidationMetrics{.step = 9, .loss = 1.5, .accuracy = 0.5});
  RunSummary summary;
  summary.steps = 10;
  summary.world_size = 2;
  summary.final_loss = 1.25;
  summary.memory = {{100.0, 50.0}, {101.0, 51.0}};
  summary.held.resize(2);
  summary.held[1].peak.add(MemoryPhase::Forward, {.optimizer = 2 << 20});
  summary.held[1].outside_mib = 30.5;
  summary.validation = ValidationMetrics{.step = 9, .loss = 1.5};
  writer.write(summary);
  const auto lines = lines_of(file);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0]["val_loss"], 1.5);
  EXPECT_EQ(lines[0]["val_accuracy"], 0.5);
  EXPECT_EQ(lines[1]["summary"], true);
  EXPECT_EQ(lines[1]["final_loss"], 1.25);
  EXPECT_EQ(lines[1]["val_loss"], 1.5);
  EXPECT_EQ(lines[1]["rss_mib"], nlohmann::json({100.0, 101.0}));
  EXPECT_EQ(lines[1]["pss_mib"], nlohmann::json({50.0, 51.0}));
  ASSERT_EQ(lines[1]["memory"].size(), 2U);
  EXPECT_EQ(lines[1]["memory"][1]["optimizer"], 2.0);
  EXPECT_EQ(lines[1]["memory"][1]["outside"], 30.5);
  EXPECT_FALSE(lines[1].contains("interrupted"));
  EXPECT_FALSE(lines[1].contains("skipped_steps"));
  summary.skipped_steps = 3;
  writer.write(summary);
  EXPECT_EQ(lines_of(file).back()["skipped_steps"], 3);
}

class KeepMetrics : public ::testing::Test {
 protected:
  /// What is left of lines before step 2, and of what follows them.
  std::string kept_of(const std::string& rest) {
    const std::string before =
        "{\"step\":0,\"loss\":5.5}\n{\"step\":0,\"val_loss\":6}\n"
        "{\"step\":1,\"loss\":5.4000000000000004}\n";
    const auto file = folder_.write("metrics.jsonl", before + rest);
    keep_metrics_before(file, 2);
    const std::string kept = read_file(file);
    EXPECT_EQ(kept.substr(0, before.size()), before) << "the same bytes";
    EXPECT_FALSE(std::filesystem::exists(file.string() + ".unfinished"));
    return kept.substr(before.size());
  }

  TemporaryFolder folder_;
};

TEST_F(KeepMetrics, WhatIsMeasuredAgainGoes) {
  EXPECT_EQ(kept_of(""), "");
  EXPECT_EQ(kept_of("{\"step\":2,\"loss\":5}\n{\"step\":3,\"loss\":4}\n"), "");
  EXPECT_EQ(kept_of("{\"step\":2,\"val_loss\":5}\n"), "");
}

TEST_F(KeepMetrics, SummaryGoesAndWhatFollowsItIsLookedAt) {
  EXPECT_EQ(kept_of("{\"summary\":true,\"steps\":2}\n{\"step\":1,\"x\":1}\n"),
            "{\"step\":1,\"x\":1}\n");
}

TEST_F(KeepMetrics, LineThatWasCutOffGoes) {
  EXPECT_EQ(kept_of("{\"step\":1,\"los"), "");
  EXPECT_EQ(kept_of("{"), "");
  EXPECT_EQ(kept_of(std::string(3, '\0') + "\n"), "");
  EXPECT_EQ(kept_of("{\"step\":\"1\"}\n{\"step\":1.5}\n[1]\n7\n\n"), "");
}

TEST_F(KeepMetrics, LineThatOnlyLostItsEndIsKept) {
  EXPECT_EQ(kept_of("{\"step\":1,\"x\":1}"), "{\"step\":1,\"x\":1}\n");
}

TEST_F(KeepMetrics, NothingIsMadeWhereThereIsNoFile) {
  keep_metrics_before(folder_.path() / "none", 2);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(KeepMetrics, BeginningAgainKeepsNothing) {
  const auto file = folder_.write("metrics.jsonl", "{\"step\":0,\"loss\":5}\n");
  keep_metrics_before(file, 0);
  EXPECT_EQ(read_file(file), "");
}

// Reading a folder fails with an error and not at an end.
TEST_F(KeepMetrics, FileThatCannotBeReadIsLeft) {
  EXPECT_THAT(
      testing::message_of([&] { keep_metrics_before(folder_.path(), 2); }),
      ::testing::HasSubstr("cannot be read to its end"));
}

TEST(Metrics, OnlyALineThatWasCutOffIsDropped) {
  const TemporaryFolder folder;
  const auto left_of = [&](const std::string& text) {
    const auto file = folder.write("metrics.jsonl", text);
    drop_cut_off_line(file);
    return read_file(file);
  };
  EXPECT_EQ(left_of("{}\n{\"summary\":true}\n"), "{}\n{\"summary\":true}\n");
  EXPECT_EQ(left_of("{}\n{\"summary\":tr"), "{}\n");
  EXPECT_EQ(left_of("{\"st"), "");
  EXPECT_EQ(left_of(""), "");
  drop_cut_off_line(folder.path() / "none");
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "none"));
}

TEST(Metrics, FileThatCannotBeWrittenIsAnError) {
  EXPECT_THAT(
      testing::message_of([] { MetricsWriter("/nowhere/metrics.jsonl"); }),
      ::testing::HasSubstr("Cannot write '/nowhere/metrics.jsonl'"));
}

TEST(Metrics, LinesWaitWhereTheDiskIsFullAndAreMissedAtTheEnd) {
  using ::testing::HasSubstr;
  MetricsWriter full("/dev/full");
  full.write(StepMetrics{});
  full.write(ValidationMetrics{});
  EXPECT_THAT(testing::message_of([&] { full.sync(); }),
              HasSubstr("Writing '/dev/full' failed: No space left on device. "
                        "2 lines wait"));
  EXPECT_THAT(testing::message_of([&] { full.write(RunSummary{}); }),
              HasSubstr("3 lines wait"));
}

/// Limits the size of files that this process writes, to its end.
class SizeLimit {
 public:
  explicit SizeLimit(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);  // writing fails instead
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  SizeLimit(const SizeLimit&) = delete;
  SizeLimit& operator=(const SizeLimit&) = delete;
  ~SizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, SIG_DFL);
  }

 private:
  rlimit before_{};
};

TEST(Metrics, LinesThatWaitedAreWrittenInOrderOnceThereIsRoom) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  MetricsWriter writer(file);
  writer.write(StepMetrics{.step = 0});
  {
    const SizeLimit limit(std::filesystem::file_size(file) + 20);
    writer.write(StepMetrics{.step = 1});  // is cut off
    writer.write(StepMetrics{.step = 2});
    EXPECT_THAT(testing::message_of([&] { writer.sync(); }),
                ::testing::HasSubstr("failed: File too large"));
  }
  writer.write(StepMetrics{.step = 3});
  writer.sync();
  const auto lines = lines_of(file);
  ASSERT_EQ(lines.size(), 4U);
  for (std::size_t step = 0; step < 4; ++step) {
    EXPECT_EQ(lines[step]["step"], step);
  }
}

TEST(Metrics, MedianOfEvenAndOddCounts) {
  EXPECT_EQ(median({}), 0.0);
  EXPECT_EQ(median({3.0, 1.0, 9.0}), 3.0);
  EXPECT_EQ(median({4.0, 1.0, 9.0, 2.0}), 3.0);
}

}  // namespace
}  // namespace accordion
