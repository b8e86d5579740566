// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/progress.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/fixtures.h"

namespace accordion {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// What is written to a stream that is a file.
class Progressed : public ::testing::Test {
 protected:
  std::string output() {
    std::fflush(file_.get());
    return testing::read_file(path_);
  }
  StepMetrics at(std::int64_t step) {
    return {.step = step, .loss = 1.5, .tokens_per_s = 14230.0};
  }

  testing::TemporaryFolder folder_;
  std::filesystem::path path_ = folder_.path() / "out.txt";
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{
      std::fopen(path_.c_str(), "w"), &std::fclose};
  ProgressInfo info_ = {.total_steps = 100,
                        .held_bytes = 112 << 20,
                        .peak_bytes = 212 << 20,
                        .seconds_left = 123.0};
};

TEST_F(Progressed, LineNamesStepLossRateMemoryAndTimeLeft) {
  EXPECT_EQ(progress_line(at(11), info_),
            "step 12/100  loss 1.5000  14.2k tokens/s  112/212 MiB  2:03 left");
  info_.total_steps = 0;
  info_.seconds_left = 3723.0;
  EXPECT_EQ(progress_line(at(11), info_),
            "step 12  loss 1.5000  14.2k tokens/s  112/212 MiB  1:02:03 left");
  StepMetrics skipped = at(11);
  skipped.skipped = true;
  EXPECT_THAT(progress_line(skipped, info_),
              HasSubstr("step 12 skipped  loss 1.5000"));
  skipped.loss_scale = 65536;
  EXPECT_THAT(progress_line(skipped, info_),
              HasSubstr("step 12 skipped at loss scale 65536  loss 1.5000"));
}

TEST_F(Progressed, FileGetsWholeLinesEveryFewSteps) {
  {
    Progress progress({.out = file_.get(), .live = false, .every = 5});
    for (std::int64_t step = 0; step < 12; ++step) {
      progress.step(at(step), info_);
    }
    progress.note("done");
  }
  const std::string text = output();
  EXPECT_THAT(text, Not(HasSubstr("\r")));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_EQ(std::ranges::count(text, '\n'), 3);
  EXPECT_THAT(text, HasSubstr("step 5/100"));
  EXPECT_THAT(text, HasSubstr("step 10/100"));
  EXPECT_THAT(text, ::testing::EndsWith("\ndone\n"));
}

TEST_F(Progressed, LiveLineIsRewrittenInPlace) {
  {
    Progress progress({.out = file_.get(), .live = true});
    for (std::int64_t step = 0; step < 3; ++step) {
      progress.step(at(step), info_);
    }
    progress.note("note");
  }
  const std::string text = output();
  EXPECT_THAT(text, HasSubstr("\r\x1b[Kstep 1/100"));
  // Shown within the refresh interval only because note() repeats the last one.
  EXPECT_THAT(text, HasSubstr("\r\x1b[Knote\n\r\x1b[Kstep 3/100"));
  EXPECT_THAT(text, ::testing::EndsWith("left\n"));
}

}  // namespace
}  // namespace accordion
