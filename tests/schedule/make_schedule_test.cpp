// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>

#include "tests/schedule/schedule_support.h"

namespace accordion {
namespace {

using testing::codes;
using testing::decoder;
using testing::decoder_schedule;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::markers;

std::vector<int> slots_of(const StepSchedule& schedule, ActionKind kind) {
  std::vector<int> slots;
  for (const Action& action : schedule.actions) {
    if (action.kind == kind) {
      slots.push_back(action.slot);
    }
  }
  return slots;
}

StepSchedule make(const std::vector<ScheduledUnit>& units,
                  const std::string& text, int prefetch) {
  return make_schedule(units, markers(text), {.depth = prefetch});
}

std::string error_of(const std::string& text, int prefetch = 0) {
  try {
    make(decoder(2), text, prefetch);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no error";
}

TEST(MakeSchedule, WithoutPrefetchGathersRightBeforeUse) {
  const StepSchedule schedule = decoder_schedule(3, 0);
  EXPECT_EQ(codes(schedule),
            "U0 F0 U1 F1 f1 X1 U2 F2 f2 X2 U3 F3 f3 f0 "
            "B0 B3 b3 R3 X3 U2 B2 b2 R2 X2 r3 U1 B1 b1 R1 X1 r2 "
            "b0 R0 X0 r1 r0");
  EXPECT_THAT(schedule.parameter_slots, ElementsAre(100, 10));
  EXPECT_THAT(schedule.gradient_slots, ElementsAre(100, 10, 10));
}

TEST(MakeSchedule, PrefetchOfOneGathersWhileTheUnitBeforeComputes) {
  const StepSchedule schedule = decoder_schedule(3, 1);
  EXPECT_EQ(codes(schedule),
            "U0 F0 U1 F1 U2 f1 X1 F2 U3 f2 X2 F3 f3 f0 "
            "B0 B3 U2 b3 R3 X3 B2 U1 b2 R2 X2 r3 B1 b1 R1 X1 r2 "
            "b0 R0 X0 r1 r0");
  EXPECT_THAT(schedule.parameter_slots, ElementsAre(100, 10, 10, 10));
}

TEST(MakeSchedule, PrefetchOfTwoGathersTwoAheadAndKeepsTheLastTwo) {
  const StepSchedule schedule = decoder_schedule(3, 2);
  EXPECT_EQ(codes(schedule),
            "U0 F0 U1 U2 F1 U3 f1 X1 F2 f2 F3 f3 f0 "
            "B0 B3 U1 b3 R3 X3 B2 b2 R2 X2 r3 B1 b1 R1 X1 r2 "
            "b0 R0 X0 r1 r0");
  EXPECT_THAT(schedule.parameter_slots, ElementsAre(100, 10, 10, 10, 10));
}

TEST(MakeSchedule, SlotsAreTakenInTheOrderTheyBecameFree) {
  const StepSchedule schedule = decoder_schedule(4, 1);
  // The root's own, then the shared ones in turn: a slot rests for one unit
  // between its last reader and its next writer.
  EXPECT_THAT(slots_of(schedule, ActionKind::Unshard),
              ElementsAre(0, 1, 2, 3, 1, 2, 3, 1));
  EXPECT_THAT(slots_of(schedule, ActionKind::Backward),
              ElementsAre(0, 1, 2, 1, 2));
}

TEST(MakeSchedule, SharedSlotsHaveTheSizeOfTheLargestUnit) {
  std::vector<ScheduledUnit> units = decoder(3);
  units[2].unsharded_bytes = 70;
  units[3].gradient_bytes = 80;
  const StepSchedule schedule =
      make_schedule(units, forward_backward_markers(units), {.depth = 1});
  EXPECT_THAT(schedule.parameter_slots, ElementsAre(100, 70, 70, 70));
  EXPECT_THAT(schedule.gradient_slots, ElementsAre(100, 80, 80));
}

TEST(MakeSchedule, KeptUnitStaysFromForwardToBackwardInItsOwnSlot) {
  std::vector<ScheduledUnit> units = decoder(3);
  units[1].kept = true;
  const StepSchedule schedule =
      make_schedule(units, forward_backward_markers(units), {.depth = 0});
  EXPECT_EQ(codes(schedule),
            "U0 F0 U1 F1 f1 U2 F2 f2 X2 U3 F3 f3 f0 "
            "B0 B3 b3 R3 X3 U2 B2 b2 R2 X2 r3 B1 b1 R1 X1 r2 "
            "b0 R0 X0 r1 r0");
  EXPECT_THAT(schedule.parameter_slots, ElementsAre(100, 10, 10));
}

TEST(MakeSchedule, FrozenUnitIsGatheredButNotReduced) {
  std::vector<ScheduledUnit> units = decoder(2);
  units[2].gradient_bytes = 0;
  const StepSchedule schedule =
      make_schedule(units, forward_backward_markers(units), {.depth = 0});
  EXPECT_EQ(codes(schedule),
            "U0 F0 U1 F1 f1 X1 U2 F2 f2 f0 "
            "B0 B2 b2 X2 U1 B1 b1 R1 X1 b0 R0 X0 r1 r0");
  EXPECT_THAT(slots_of(schedule, ActionKind::Backward), ElementsAre(0, -1, 1));
}

TEST(MakeSchedule, WholeUnitIsReducedButNotGathered) {
  std::vector<ScheduledUnit> units = decoder(2);
  units[1].unsharded_bytes = 0;
  const StepSchedule schedule =
      make_schedule(units, forward_backward_markers(units), {.depth = 1});
  EXPECT_EQ(codes(schedule),
            "U0 F0 U2 F1 f1 F2 f2 f0 "
            "B0 B2 b2 R2 X2 B1 b1 R1 r2 b0 R0 X0 r1 r0");
}

TEST(MakeSchedule, UnitCalledTwiceIsGatheredForEachCallAndReducedOnce) {
  EXPECT_EQ(
      codes(make(decoder(2), "F0 F1 f1 F2 f2 F1 f1 f0 B0 B2 b2 B1 b1 b0", 0)),
      "U0 F0 U1 F1 f1 X1 U2 F2 f2 X2 U1 F1 f1 X1 f0 "
      "B0 U2 B2 b2 R2 X2 U1 B1 b1 R1 X1 r2 b0 R0 X0 r1 r0");
}

TEST(MakeSchedule, UnitCalledAgainAtOnceStays) {
  EXPECT_EQ(codes(make(decoder(1), "F0 F1 f1 F1 f1 f0 B0 B1 b1 b0", 0)),
            "U0 F0 U1 F1 f1 F1 f1 f0 B0 B1 b1 R1 X1 b0 R0 X0 r1 r0");
}

TEST(MakeSchedule, ReentrantUnitIsReshardedAfterItsLastOpenCall) {
  EXPECT_EQ(
      codes(make(decoder(2), "F0 F1 F1 f1 f1 F2 f2 f0 B0 B2 b2 B1 b1 b0", 0)),
      "U0 F0 U1 F1 F1 f1 f1 X1 U2 F2 f2 f0 "
      "B0 B2 b2 R2 X2 U1 B1 b1 R1 X1 r2 b0 R0 X0 r1 r0");
}

TEST(MakeSchedule, ForwardInsideItsBackwardFindsTheUnitUnsharded) {
  EXPECT_EQ(codes(make(decoder(2),
                       "F0 F1 f1 F2 f2 f0 B0 B2 F2 f2 b2 B1 F1 f1 b1 b0", 0)),
            "U0 F0 U1 F1 f1 X1 U2 F2 f2 f0 "
            "B0 B2 F2 f2 b2 R2 X2 U1 B1 F1 f1 b1 R1 X1 r2 b0 R0 X0 r1 r0");
}

TEST(MakeSchedule, ForwardWithoutBackwardIsResharded) {
  EXPECT_EQ(codes(make(decoder(2), "F0 F1 f1 F2 f2 f0", 1)),
            "U0 F0 U1 F1 U2 f1 X1 F2 f2 X2 f0 X0");
}

// retain_graph, or a checkpoint that ran its forward without a graph.
TEST(MakeSchedule, BackwardWithoutForwardIsGathered) {
  EXPECT_EQ(codes(make(decoder(1), "B0 B1 b1 b0", 0)),
            "U0 B0 U1 B1 b1 R1 X1 b0 R0 X0 r1 r0");
}

TEST(MakeSchedule, SecondBackwardWaitsForTheFirstReduction) {
  EXPECT_EQ(codes(make(decoder(0), "F0 f0 B0 b0 F0 f0 B0 b0", 0)),
            "U0 F0 f0 B0 b0 R0 F0 f0 r0 B0 b0 R0 X0 r0");
}

TEST(MakeSchedule, NestedUnitsThatAreNotKeptHaveASlotEach) {
  std::vector<ScheduledUnit> units = decoder(2);
  units[0].kept = false;
  const StepSchedule schedule =
      make_schedule(units, forward_backward_markers(units), {.depth = 0});
  EXPECT_EQ(codes(schedule),
            "U0 F0 U1 F1 f1 X1 U2 F2 f2 X2 f0 "
            "B0 U2 B2 b2 R2 X2 U1 B1 b1 R1 X1 r2 b0 R0 X0 r1 r0");
  EXPECT_THAT(schedule.parameter_slots, ElementsAre(100, 100));
}

// ---- Passes of a step of several microbatches ------------------------------

/// A kept root and two blocks in a pass of this kind.
std::string pass_codes(const std::function<void(ScheduledUnit&)>& edit) {
  std::vector<ScheduledUnit> units = decoder(2);
  for (ScheduledUnit& unit : units) {
    edit(unit);
  }
  const StepSchedule schedule =
      make_schedule(units, forward_backward_markers(units), {.depth = 0});
  EXPECT_EQ(validate(schedule), "") << to_table(schedule);
  return codes(schedule);
}

TEST(MakeSchedule, WholeParametersStayForTheNextPass) {
  EXPECT_EQ(pass_codes([](ScheduledUnit& unit) { unit.ends_unsharded = true; }),
            "U0 F0 U1 F1 f1 U2 F2 f2 f0 "
            "B0 B2 b2 R2 B1 b1 R1 r2 b0 R0 r1 r0");
}

TEST(MakeSchedule, WholeParametersOfThePassBeforeAreFreedInTheLast) {
  EXPECT_EQ(pass_codes([](ScheduledUnit& unit) {
              unit.begins_unsharded = unit.kept = true;
            }),
            "F0 F1 f1 F2 f2 f0 "
            "B0 B2 b2 R2 X2 B1 b1 R1 X1 r2 b0 R0 X0 r1 r0");
}

TEST(MakeSchedule, GatheredByHandServesTheForwardOnly) {
  EXPECT_EQ(pass_codes([](ScheduledUnit& unit) {
              unit.begins_unsharded = unit.name == "1";
            }),
            "U0 F0 F1 f1 X1 U2 F2 f2 f0 "
            "B0 B2 b2 R2 X2 U1 B1 b1 R1 X1 r2 b0 R0 X0 r1 r0");
}

TEST(MakeSchedule, GradientsThatStayWholeAreNotReduced) {
  EXPECT_EQ(pass_codes([](ScheduledUnit& unit) { unit.reduces = false; }),
            "U0 F0 U1 F1 f1 X1 U2 F2 f2 f0 "
            "B0 B2 b2 X2 U1 B1 b1 X1 b0 X0");
}

TEST(MakeSchedule, GradientsThatStayHaveSlotsOfTheirOwn) {
  std::vector<ScheduledUnit> units = decoder(3);
  for (ScheduledUnit& unit : units) {
    unit.reduces = false;
  }
  const StepSchedule schedule =
      make_schedule(units, forward_backward_markers(units), {.depth = 1});
  EXPECT_THAT(schedule.gradient_slots, ElementsAre(100, 10, 10, 10));
}

TEST(MakeSchedule, GradientsOfPassesBeforeAreReducedInTheLast) {
  const auto edit = [](ScheduledUnit& unit) {
    unit.begins_with_gradient = true;
  };
  EXPECT_EQ(pass_codes(edit),
            "U0 F0 U1 F1 f1 X1 U2 F2 f2 f0 "
            "B0 B2 b2 R2 X2 U1 B1 b1 R1 X1 r2 b0 R0 X0 r1 r0");
  std::vector<ScheduledUnit> units = decoder(2);
  for (ScheduledUnit& unit : units) {
    edit(unit);
  }
  const StepSchedule schedule =
      make_schedule(units, markers("F0 F1 f1 f0 B0 B1 b1 b0"), {.depth = 0});
  EXPECT_EQ(codes(schedule),
            "U0 F0 U1 F1 f1 f0 B0 B1 b1 R1 X1 b0 R0 X0 r1 R2 r0 r2")
      << "unit 2 had no part in the last pass";
  EXPECT_THAT(schedule.gradient_slots, IsEmpty());
  EXPECT_EQ(validate(schedule), "");
}

TEST(MakeSchedule, AllReduceOverReplicasFollowsOneUnitBehind) {
  EXPECT_EQ(pass_codes([](ScheduledUnit& unit) { unit.all_reduce_bytes = 5; }),
            "U0 F0 U1 F1 f1 X1 U2 F2 f2 f0 "
            "B0 B2 b2 R2 X2 U1 B1 b1 R1 X1 r2 A2 b0 R0 X0 a2 r1 A1 "
            "a1 r0 A0 a0");
}

TEST(MakeSchedule, UnitsStepOnceTheirGradientIsReduced) {
  EXPECT_EQ(
      pass_codes([](ScheduledUnit& unit) { unit.gradient_shard_bytes = 5; }),
      "U0 F0 U1 F1 f1 X1 U2 F2 f2 f0 "
      "B0 B2 b2 R2 X2 U1 B1 b1 R1 X1 r2 S2 b0 R0 X0 r1 S1 r0 S0");
  EXPECT_EQ(pass_codes([](ScheduledUnit& unit) {
              unit.gradient_shard_bytes = unit.all_reduce_bytes = 5;
            }),
            "U0 F0 U1 F1 f1 X1 U2 F2 f2 f0 "
            "B0 B2 b2 R2 X2 U1 B1 b1 R1 X1 r2 A2 b0 R0 X0 a2 S2 r1 A1 "
            "a1 S1 r0 A0 a0 S0");
}

TEST(MakeSchedule, GradientsAreOffloadedOnceTheyAreReduced) {
  EXPECT_EQ(pass_codes([](ScheduledUnit& unit) {
              unit.gradient_shard_bytes = 5;
              unit.offloads_gradient = true;
            }),
            "U0 F0 U1 F1 f1 X1 U2 F2 f2 f0 "
            "B0 B2 b2 R2 X2 U1 B1 b1 R1 X1 r2 O2 b0 R0 X0 r1 O1 r0 O0");
}

TEST(MakeSchedule, ShardedGradientsTakeTurnsInSlotsUntilTheirStep) {
  std::vector<ScheduledUnit> units = decoder(4);
  for (ScheduledUnit& unit : units) {
    unit.gradient_shard_bytes = unit.gradient_bytes / 2;
  }
  const StepSchedule schedule =
      make_schedule(units, forward_backward_markers(units), {.depth = 1});
  EXPECT_THAT(schedule.gradient_shard_slots, ElementsAre(50, 5))
      << "as large as what is put there";
  EXPECT_EQ(validate(schedule), "");
}

TEST(MakeSchedule, UnitsThatStayWholeFromThePassBeforeAreFreedForTheirStep) {
  std::vector<ScheduledUnit> units = decoder(2);
  for (ScheduledUnit& unit : units) {
    unit.gradient_shard_bytes = 5;
    unit.begins_unsharded = unit.begins_with_gradient = true;
  }
  const StepSchedule schedule =
      make_schedule(units, markers("F0 F1 f1 f0 B0 B1 b1 b0"), {.depth = 0});
  EXPECT_EQ(codes(schedule),
            "F0 F1 f1 f0 B0 B1 b1 R1 X1 b0 R0 X0 r1 S1 X2 R2 r0 S0 r2 S2");
  EXPECT_EQ(validate(schedule), "");
}

TEST(MakeSchedule, ExplicitListsReplaceWhatComesNext) {
  std::vector<ScheduledUnit> units = decoder(3);
  units[1].forward_prefetch = {{2, 3}};
  units[2].forward_prefetch = std::vector<int>();
  units[3].backward_prefetch = {{1}};
  const StepSchedule schedule =
      make_schedule(units, forward_backward_markers(units), {.depth = 1});
  EXPECT_EQ(codes(schedule),
            "U0 F0 U1 F1 U2 U3 f1 X1 F2 f2 X2 F3 f3 f0 "
            "B0 B3 U1 b3 R3 X3 U2 B2 b2 R2 X2 r3 B1 b1 R1 X1 r2 "
            "b0 R0 X0 r1 r0");
}

TEST(MakeSchedule, ByteBudgetLimitsWhatIsGatheredAhead) {
  std::vector<ScheduledUnit> units = decoder(3);
  units[2].unsharded_bytes = 30;
  const StepSchedule schedule = make_schedule(
      units, forward_backward_markers(units), {.depth = 1, .max_bytes = 20});
  EXPECT_EQ(codes(schedule),
            "U0 F0 U1 F1 f1 X1 U2 F2 U3 f2 X2 F3 f3 f0 "
            "B0 B3 b3 R3 X3 U2 B2 U1 b2 R2 X2 r3 B1 b1 R1 X1 r2 "
            "b0 R0 X0 r1 r0");
}

TEST(MakeSchedule, NothingToDoGivesAnEmptySchedule) {
  const StepSchedule schedule = make_schedule({}, {}, {.depth = 1});
  EXPECT_TRUE(schedule.empty());
  EXPECT_THAT(schedule.parameter_slots, IsEmpty());
  EXPECT_EQ(validate(schedule), "");
}

TEST(MakeSchedule, ImpossibleMarkersAreNamed) {
  EXPECT_THAT(error_of("F0 f0", -1), HasSubstr("prefetch is -1"));
  EXPECT_THAT(error_of("F0 F3"), HasSubstr("marker 1 is of unit 3"));
  EXPECT_THAT(error_of("F0 f1 f0"),
              HasSubstr("marker 1 of unit '1': its forward ends without"));
  EXPECT_THAT(error_of("F0 f0 B0 B0"),
              HasSubstr("its backward begins while it runs"));
  EXPECT_THAT(error_of("F0 f0 b0"), HasSubstr("its backward ends without"));
  EXPECT_THAT(error_of("F0 f0 R0"), HasSubstr("actions other than markers"));
  EXPECT_THAT(error_of("F0 F1 f0"), HasSubstr("'1': its forward never ends"));
  EXPECT_THAT(error_of("F0 f0 B0"), HasSubstr("its backward never ends"));
}

// What is gathered in place happens when it would in a slot.
TEST(MakeSchedule, UnitsInPlaceTakeNoSlot) {
  std::vector<ScheduledUnit> units = testing::decoder(3);
  for (ScheduledUnit& unit : units) {
    unit.in_place = true;
  }
  const auto markers = forward_backward_markers(units);
  const StepSchedule schedule = make_schedule(units, markers, {.depth = 1});
  EXPECT_EQ(codes(schedule), codes(testing::decoder_schedule(3, 1)));
  EXPECT_THAT(schedule.parameter_slots, IsEmpty());
  EXPECT_THAT(schedule.gradient_slots,
              testing::decoder_schedule(3, 1).gradient_slots);
  for (const Action& action : schedule.actions) {
    EXPECT_TRUE(action.kind != ActionKind::Unshard || action.slot == -1);
  }
  EXPECT_EQ(peak_unsharded_bytes(schedule), 0);
  EXPECT_EQ(validate(schedule), "");
}

TEST(MakeSchedule, UnitsInPlaceLeaveSlotsToTheOthers) {
  std::vector<ScheduledUnit> units = testing::decoder(3);
  units[0].in_place = units[2].in_place = true;
  const StepSchedule schedule =
      make_schedule(units, forward_backward_markers(units), {.depth = 1});
  EXPECT_THAT(schedule.parameter_slots, ElementsAre(10, 10));
  EXPECT_EQ(peak_unsharded_bytes(schedule), 10);
  EXPECT_EQ(validate(schedule), "");
}

}  // namespace
}  // namespace accordion
