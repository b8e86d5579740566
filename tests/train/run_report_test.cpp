// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/run_report.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/fixtures.h"

namespace accordion {
namespace {

using ::testing::HasSubstr;
using testing::read_file;
using testing::TemporaryFolder;

/// Reports a run of three steps as `rank`; returns what a person saw.
std::string report_run(const std::filesystem::path& folder, int rank) {
  const auto out = folder / "out.txt";
  {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
        std::fopen(out.c_str(), "w"), &std::fclose);
    RunReport report(
        {.folder = folder, .rank = rank, .log_every = 2, .out = file.get()});
    report.note("a note");
    for (std::int64_t step = 0; step < 3; ++step) {
      report.step({.step = step, .loss = 2.5, .ms = 7.0}, {.total_steps = 3});
    }
    report.validation({.step = 2, .loss = 1.25, .accuracy = 0.5});
    RunSummary summary;
    summary.steps = 3;
    summary.final_loss = 2.5;
    summary.skipped_steps = 2;
    report.summary(summary);
  }
  return read_file(out);
}

TEST(RunReport, Rank0WritesMetricsLogAndProgress) {
  const TemporaryFolder folder;
  const std::string seen = report_run(folder.path(), 0);
  EXPECT_THAT(seen, HasSubstr("a note\nstep 2/3  loss 2.5000"));
  EXPECT_THAT(seen, HasSubstr("held-out text: 1.2500 nats per token, 50.0 %"));
  EXPECT_THAT(seen, HasSubstr("3 steps, 2 of them skipped, loss 2.5000"));
  const std::string metrics = read_file(folder.path() / "metrics.jsonl");
  EXPECT_EQ(std::ranges::count(metrics, '\n'), 5);
  EXPECT_THAT(metrics, HasSubstr("\"summary\":true"));
  EXPECT_THAT(read_file(folder.path() / "log-rank0.txt"),
              HasSubstr("step 1: 7.00 ms"));
}

TEST(RunReport, OtherRanksWriteTheirLogAlone) {
  const TemporaryFolder folder;
  EXPECT_EQ(report_run(folder.path(), 1), "");
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "metrics.jsonl"));
  const std::string log = read_file(folder.path() / "log-rank1.txt");
  EXPECT_THAT(log, HasSubstr("step 1: 7.00 ms"));
  EXPECT_THAT(log, HasSubstr("3 steps, 2 of them skipped, loss 2.5000"));
}

TEST(RunReport, SignalThatEndedTheRunIsSaid) {
  const TemporaryFolder folder;
  RunReport report({.folder = folder.path(), .rank = 1});
  RunSummary summary;
  summary.steps = 4;
  summary.interrupted = true;
  report.summary(summary);
  EXPECT_THAT(read_file(folder.path() / "log-rank1.txt"),
              HasSubstr("stopped by a signal after 4 steps"));
}

}  // namespace
}  // namespace accordion
