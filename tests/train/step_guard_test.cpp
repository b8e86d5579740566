// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/nonfinite_guard.h"

#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/fixtures.h"

namespace accordion {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

class Guarded : public ::testing::Test {
 protected:
  bool takes(double norm) {
    return guard_.takes_step(7, norm, [this] {
      ++asked_;
      return std::string("the first unit at fault is 'layers.3'");
    });
  }

  TrainConfig config_;
  NonfiniteGuard guard_{config_};
  int asked_ = 0;
};

TEST_F(Guarded, ErrorNamesStepNormUnitAndWhatToDo) {
  EXPECT_TRUE(takes(1e9));
  EXPECT_EQ(asked_, 0);
  EXPECT_THAT(message_of([&] { takes(kInfinity); }),
              AllOf(HasSubstr("gradient at step 7 is not finite (norm inf): "
                              "the first unit at fault is 'layers.3'."),
                    HasSubstr("train.nonfinite = \"skip\""),
                    HasSubstr("Lower optimizer.lr")));
}

TEST_F(Guarded, SkipsAreBoundedInARowOnly) {
  config_.train.nonfinite = "skip";
  config_.train.max_skips = 2;
  for (int round = 0; round < 3; ++round) {
    EXPECT_FALSE(takes(kNan));
    EXPECT_FALSE(takes(kInfinity));
    EXPECT_TRUE(takes(1.0));
  }
  EXPECT_FALSE(takes(kNan));
  EXPECT_FALSE(takes(kNan));
  EXPECT_EQ(asked_, 0);
  EXPECT_THAT(message_of([&] { takes(kNan); }),
              HasSubstr("The 2 steps before were skipped"));
}

TEST_F(Guarded, AllowTakesEveryStep) {
  config_.train.nonfinite = "allow";
  for (int step = 0; step < 20; ++step) {
    EXPECT_TRUE(takes(kNan));
  }
  EXPECT_EQ(asked_, 0);
}

}  // namespace
}  // namespace accordion
