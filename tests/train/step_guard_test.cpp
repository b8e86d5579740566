// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/step_guard.h"

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
using Verdict = StepGuard::Verdict;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

class Guarded : public ::testing::Test {
 protected:
  StepGuard::Judgement judge(double norm, double loss = 1.0) {
    return guard_.judge({.number = 7, .grad_norm = norm, .loss = loss}, [this] {
      ++asked_;
      return std::string("the first unit at fault is 'layers.3'");
    });
  }
  Verdict verdict(double norm, double loss = 1.0) {
    return judge(norm, loss).verdict;
  }
  /// Enough losses for a mean, which is then `loss`.
  void see_losses(double loss) {
    for (int step = 0; step < 30; ++step) {
      EXPECT_EQ(verdict(1.0, loss), Verdict::Take);
    }
  }

  TrainConfig config_;
  StepGuard guard_{config_};
  int asked_ = 0;
};

TEST_F(Guarded, ErrorNamesStepNormUnitAndWhatToDo) {
  EXPECT_EQ(verdict(1e9), Verdict::Take);
  EXPECT_EQ(asked_, 0);
  EXPECT_THAT(message_of([&] { judge(kInfinity); }),
              AllOf(HasSubstr("gradient at step 7 is not finite (norm inf): "
                              "the first unit at fault is 'layers.3'."),
                    HasSubstr("\"skip\" leaves out such steps"),
                    HasSubstr("Lower optimizer.lr")));
}

TEST_F(Guarded, SkipsAreBoundedInARowOnly) {
  config_.train.nonfinite = "skip";
  config_.train.max_skips = 2;
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(verdict(kNan), Verdict::Skip);
    EXPECT_EQ(verdict(kInfinity), Verdict::Skip);
    EXPECT_EQ(verdict(1.0), Verdict::Take);
  }
  EXPECT_EQ(verdict(kNan), Verdict::Skip);
  EXPECT_EQ(verdict(kNan), Verdict::Skip);
  EXPECT_EQ(asked_, 0);
  EXPECT_THAT(message_of([&] { judge(kNan); }),
              HasSubstr("The 2 steps before were skipped"));
}

TEST_F(Guarded, RollbackSaysWhyAndIsBoundedInARun) {
  config_.train.nonfinite = "rollback";
  config_.train.max_rollbacks = 2;
  const auto first = judge(kNan);
  EXPECT_EQ(first.verdict, Verdict::RollBack);
  EXPECT_THAT(first.fault, HasSubstr("'layers.3'"));
  EXPECT_EQ(verdict(1.0), Verdict::Take);
  EXPECT_EQ(verdict(kNan), Verdict::RollBack);
  EXPECT_THAT(message_of([&] { judge(kNan); }),
              HasSubstr("went back to a checkpoint 2 times"));
}

TEST_F(Guarded, AllowTakesEveryStep) {
  config_.train.nonfinite = "allow";
  for (int step = 0; step < 20; ++step) {
    EXPECT_EQ(verdict(kNan), Verdict::Take);
  }
  EXPECT_EQ(asked_, 0);
}

TEST_F(Guarded, SpikesAreAllowedUnlessAskedFor) {
  EXPECT_FALSE(guard_.watches_loss());
  see_losses(2.0);
  EXPECT_EQ(verdict(1.0, 1e6), Verdict::Take);
}

TEST_F(Guarded, SpikeIsALossFarAboveTheMeanBeforeIt) {
  config_.train.spike = "skip";
  EXPECT_TRUE(guard_.watches_loss());
  see_losses(2.0);
  EXPECT_EQ(verdict(1.0, 3.99), Verdict::Take);
  const auto spike = judge(1.0, 4.5);
  EXPECT_EQ(spike.verdict, Verdict::Skip);
  EXPECT_THAT(spike.fault, AllOf(HasSubstr("loss at step 7 is 4.5000"),
                                 HasSubstr("more than 2 times")));
  EXPECT_EQ(asked_, 0) << "the gradient is not at fault";
}

TEST_F(Guarded, TheFirstLossesAreNoMean) {
  config_.train.spike = "error";
  for (int step = 0; step < 19; ++step) {
    EXPECT_EQ(verdict(1.0, step == 10 ? 50.0 : 1.0), Verdict::Take);
  }
}

TEST_F(Guarded, SkippedLossesAreNotInTheMean) {
  config_.train.spike = "skip";
  config_.train.max_skips = 100;
  see_losses(2.0);
  for (int step = 0; step < 50; ++step) {
    EXPECT_EQ(verdict(1.0, 100.0), Verdict::Skip);
  }
}

TEST_F(Guarded, AResumedRunGoesByTheSameMemory) {
  config_.train.spike = "skip";
  see_losses(2.0);
  StepGuard resumed(config_);
  EXPECT_EQ(
      resumed.judge({.number = 30, .grad_norm = 1.0, .loss = 5.0}, {}).verdict,
      Verdict::Take);
  resumed.set_memory(guard_.memory());
  EXPECT_EQ(
      resumed.judge({.number = 30, .grad_norm = 1.0, .loss = 5.0}, {}).verdict,
      Verdict::Skip);
}

}  // namespace
}  // namespace accordion
