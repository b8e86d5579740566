// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/schedule/schedule_support.h"

namespace accordion {
namespace {

using testing::decoder_schedule;
using ::testing::HasSubstr;

using Kind = ActionKind;

/// A schedule of a root and two blocks, to be edited.
class ValidateSchedule : public ::testing::Test {
 protected:
  /// Index of the n-th action of this kind and unit.
  int find(Kind kind, int unit, int n = 0) {
    for (int i = 0; i < static_cast<int>(schedule_.actions.size()); ++i) {
      const Action& action = schedule_.actions[i];
      if (action.kind == kind && action.unit == unit && n-- == 0) {
        return i;
      }
    }
    ADD_FAILURE() << "no such action";
    return 0;
  }

  void erase(int index) {
    schedule_.actions.erase(schedule_.actions.begin() + index);
  }

  void insert(int index, Action action) {
    schedule_.actions.insert(schedule_.actions.begin() + index, action);
  }

  void move(int from, int to) {
    const Action action = schedule_.actions[from];
    erase(from);
    insert(to, action);
  }

  void expect_fault(const std::string& words) {
    EXPECT_THAT(validate(schedule_), HasSubstr(words));
  }

  StepSchedule schedule_ = decoder_schedule(2, 1);
};

TEST_F(ValidateSchedule, AcceptsWhatMakeScheduleMakes) {
  EXPECT_EQ(validate(schedule_), "");
}

TEST_F(ValidateSchedule, AcceptsAPrefetchThatIsMoved) {
  move(find(Kind::Unshard, 2), find(Kind::Forward, 1));
  EXPECT_EQ(validate(schedule_), "");
}

TEST_F(ValidateSchedule, AcceptsAReductionThatIsDelayed) {
  move(find(Kind::Reduce, 2), find(Kind::FinishReduce, 2) - 1);
  EXPECT_EQ(validate(schedule_), "");
}

TEST_F(ValidateSchedule, NamesTheActionWithTheFault) {
  erase(find(Kind::Unshard, 1));
  EXPECT_EQ(validate(schedule_),
            "action 2: forward of '1' without an unshard before it");
}

TEST_F(ValidateSchedule, FindsUnshardsThatAreWrong) {
  const int index = find(Kind::Unshard, 1);
  insert(index + 1, schedule_.actions[index]);
  expect_fault("unshard of '1', which is unsharded already");
  erase(index);
  schedule_.units[1].unsharded_bytes = 0;
  expect_fault("unshard of '1', which has nothing to gather");
}

TEST_F(ValidateSchedule, FindsReshardsThatAreWrong) {
  const StepSchedule good = schedule_;
  insert(0, {Kind::Reshard, 1});
  expect_fault("action 0: reshard of '1', which is not unsharded");
  schedule_ = good;
  move(find(Kind::Reshard, 1), find(Kind::ForwardEnd, 1));
  expect_fault("reshard of '1' while its forward runs");
  schedule_ = good;
  move(find(Kind::Reshard, 2), find(Kind::BackwardEnd, 2));
  expect_fault("reshard of '2' while its backward runs");
  schedule_ = good;
  erase(find(Kind::Reshard, 0));
  expect_fault("at the end: (root) is never resharded");
}

TEST_F(ValidateSchedule, FindsForwardsThatAreWrong) {
  const StepSchedule good = schedule_;
  erase(find(Kind::Forward, 2));
  expect_fault("end of a forward of '2' that has not begun");
  schedule_ = good;
  erase(find(Kind::ForwardEnd, 0));
  erase(find(Kind::Reshard, 0));
  expect_fault("at the end: forward of (root) never ends");
}

TEST_F(ValidateSchedule, FindsBackwardsThatAreWrong) {
  const StepSchedule good = schedule_;
  insert(0, {Kind::Backward, 0, 0});
  expect_fault("backward of (root) without an unshard before it");
  schedule_ = good;
  erase(find(Kind::Unshard, 1, 1));
  expect_fault("backward of '1' without an unshard before it");
  schedule_ = good;
  insert(find(Kind::Backward, 2) + 1, {Kind::Backward, 2, 2});
  expect_fault("backward of '2' begins before the one before it is reduced");
  schedule_ = good;
  erase(find(Kind::Backward, 1));
  expect_fault("end of a backward of '1' that has not begun");
  schedule_ = good;
  schedule_.actions.resize(find(Kind::BackwardEnd, 0));
  std::erase_if(schedule_.actions,
                [](const Action& action) { return action.unit != 0; });
  expect_fault("at the end: backward of (root) never ends");
}

TEST_F(ValidateSchedule, FindsReductionsThatAreWrong) {
  const StepSchedule good = schedule_;
  move(find(Kind::Reduce, 2), find(Kind::BackwardEnd, 2));
  expect_fault("reduce of '2', whose gradient is not complete");
  schedule_ = good;
  insert(find(Kind::Reduce, 2), {Kind::Reduce, 2});
  expect_fault("reduce of '2', whose gradient is not complete");
  schedule_ = good;
  move(find(Kind::FinishReduce, 2), find(Kind::Reduce, 2));
  expect_fault("end of a reduction of '2' that has not begun");
  schedule_ = good;
  erase(find(Kind::FinishReduce, 0));
  expect_fault("at the end: the reduction of (root) is never finished");
  erase(find(Kind::Reduce, 0));
  expect_fault("at the end: the gradient of (root) is never reduced");
}

TEST_F(ValidateSchedule, FindsOffloadsThatAreWrong) {
  std::vector<ScheduledUnit> units = schedule_.units;
  for (ScheduledUnit& unit : units) {
    unit.gradient_shard_bytes = 5;
    unit.offloads_gradient = true;
  }
  const StepSchedule good =
      make_schedule(units, markers_of(schedule_), {.depth = 1});
  ASSERT_EQ(validate(good), "");

  schedule_ = good;
  erase(find(Kind::Offload, 0));
  expect_fault("at the end: (root) is never offloaded");

  schedule_ = good;
  move(find(Kind::Offload, 2), find(Kind::FinishReduce, 2));
  expect_fault("offload of the gradient of '2', which is not there");

  schedule_ = good;
  schedule_.actions[find(Kind::Offload, 1)].kind = Kind::Step;
  expect_fault("step of '1', whose gradient is not there, or stays");
}

TEST_F(ValidateSchedule, FindsStepsThatAreWrong) {
  std::vector<ScheduledUnit> units = schedule_.units;
  for (ScheduledUnit& unit : units) {
    unit.gradient_shard_bytes = 5;
  }
  const StepSchedule good =
      make_schedule(units, markers_of(schedule_), {.depth = 1});
  ASSERT_EQ(validate(good), "");

  schedule_ = good;
  erase(find(Kind::Step, 0));
  expect_fault("at the end: (root) is never stepped");

  schedule_ = good;
  move(find(Kind::Step, 2), find(Kind::FinishReduce, 2));
  expect_fault("step of '2', whose gradient is not there");

  schedule_ = good;
  move(find(Kind::Reshard, 2), find(Kind::Step, 2));
  expect_fault("step of '2' while it is unsharded");

  schedule_ = good;
  insert(find(Kind::Step, 1) + 1, {Kind::Backward, 2});
  insert(find(Kind::Backward, 2, 1), {Kind::Unshard, 2, 1});
  expect_fault("backward of '2' begins after its step");

  schedule_ = good;
  schedule_.actions[find(Kind::Reduce, 1)].slot =
      schedule_.actions[find(Kind::Reduce, 2)].slot;
  expect_fault("'1' takes sharded gradient slot 0 while '2' uses it");

  schedule_ = good;
  schedule_.units[2].gradient_shard_bytes = 0;
  expect_fault("slot 0 for '2', which uses none");
}

TEST_F(ValidateSchedule, FindsSlotsThatAreWrong) {
  const StepSchedule good = schedule_;
  schedule_.actions[find(Kind::Unshard, 1)].slot = 9;
  expect_fault("'1' takes parameter slot 9, but there are 4");
  schedule_ = good;
  schedule_.actions[find(Kind::Unshard, 1)].slot = 0;
  expect_fault("'1' takes parameter slot 0 while (root) uses it");
  schedule_ = good;
  schedule_.parameter_slots[0] = 99;
  expect_fault("(root) needs 100 bytes, but parameter slot 0 has 99");
  schedule_ = good;
  schedule_.actions[find(Kind::Backward, 2)].slot = 0;
  expect_fault("'2' takes gradient slot 0 while (root) uses it");
  schedule_ = good;
  schedule_.actions[find(Kind::Backward, 0)].slot = -1;
  expect_fault("(root) takes gradient slot -1");
  schedule_ = good;
  schedule_.actions[find(Kind::Reshard, 0)].slot = 0;
  expect_fault("slot 0 for (root), which uses none");
}

TEST_F(ValidateSchedule, FindsASlotForAUnitThatIsGatheredInPlace) {
  schedule_.units[1].in_place = true;
  expect_fault("for '1', which uses none");
  for (Action& action : schedule_.actions) {
    if (action.kind == Kind::Unshard && action.unit == 1) {
      action.slot = -1;
    }
  }
  EXPECT_EQ(validate(schedule_), "");
  erase(find(Kind::Unshard, 1));
  expect_fault("forward of '1' without an unshard before it");
}

TEST_F(ValidateSchedule, FindsAGradientSlotForAFrozenUnit) {
  schedule_.units[2].gradient_bytes = 0;
  expect_fault("gradient slot 1 for '2', which has no gradient");
}

TEST_F(ValidateSchedule, FindsUnitsThatDoNotExist) {
  insert(1, {Kind::Forward, 5});
  expect_fault("action 1: there is no unit 5; the schedule has 3");
}

}  // namespace
}  // namespace accordion
