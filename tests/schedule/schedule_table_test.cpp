// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/schedule/schedule_support.h"

namespace accordion {
namespace {

using ::testing::HasSubstr;

TEST(ScheduleTable, ShowsEachActionWithSlotAndMemory) {
  std::vector<ScheduledUnit> units = testing::decoder(1);
  units[0].unsharded_bytes = 3 << 20;
  units[0].gradient_bytes = 6 << 20;
  units[1].name = "layers.0";
  units[1].unsharded_bytes = 1 << 19;
  EXPECT_EQ(to_table(make_schedule(units, forward_backward_markers(units),
                                   {.depth = 0})),
            R"(   #  action             unit      slot  unsharded MiB
   0  unshard            (root)      p0           3.00
   1  forward {          (root)                   3.00
   2  unshard            layers.0    p1           3.50
   3  forward {          layers.0                 3.50
   4  } forward          layers.0                 3.50
   5  } forward          (root)                   3.50
   6  backward {         (root)      g0           3.50
   7  backward {         layers.0    g1           3.50
   8  } backward         layers.0                 3.50
   9  reduce             layers.0                 3.50
  10  reshard            layers.0                 3.00
  11  } backward         (root)                   3.00
  12  reduce             (root)                   3.00
  13  reshard            (root)                   0.00
  14  finish reduce      layers.0                 0.00
  15  finish reduce      (root)                   0.00
parameter slots (MiB): p0 3.00, p1 0.50
gradient slots (MiB): g0 6.00, g1 0.00
peak unsharded MiB: 3.50
)");
}

TEST(ScheduleTable, PutsSlotsOfOneSizeTogether) {
  EXPECT_THAT(to_table(testing::decoder_schedule(3, 1)),
              HasSubstr("p0 0.00, p1-p3 0.00 each"));
}

TEST(ScheduleTable, ShowsWhatIsGatheredInPlace) {
  std::vector<ScheduledUnit> units = testing::decoder(1);
  units[0].unsharded_bytes = units[1].unsharded_bytes = 1 << 20;
  units[0].in_place = true;
  const auto table = [&] {
    return to_table(
        make_schedule(units, forward_backward_markers(units), {.depth = 0}));
  };
  EXPECT_THAT(table(),
              HasSubstr("unshard            (root)     -           0.00"));
  EXPECT_THAT(table(),
              HasSubstr("unshard            1         p0           1.00"));
  EXPECT_THAT(table(), HasSubstr("parameter slots (MiB): p0 1.00; 1 of 2 units "
                                 "are gathered in place (-)"));
  units[1].in_place = true;
  EXPECT_THAT(table(), HasSubstr("parameter slots (MiB): none; 2 of 2 units"));
  EXPECT_THAT(table(), HasSubstr("peak unsharded MiB: 0.00"));
}

TEST(ScheduleTable, ShowsStepsAndWhereTheirGradientsWait) {
  std::vector<ScheduledUnit> units = testing::decoder(1);
  for (ScheduledUnit& unit : units) {
    unit.gradient_shard_bytes = 1 << 20;
  }
  const std::string table = to_table(
      make_schedule(units, forward_backward_markers(units), {.depth = 0}));
  EXPECT_THAT(table, HasSubstr("reduce             1         s0"));
  EXPECT_THAT(table, HasSubstr("step               (root) "));
  EXPECT_THAT(table,
              HasSubstr("sharded gradient slots (MiB): s0-s1 1.00 each"));
}

TEST(ScheduleTable, ShowsFaultySchedulesToo) {
  StepSchedule schedule = testing::decoder_schedule(1, 0);
  schedule.actions[2].unit = 7;
  EXPECT_THAT(to_table(schedule), HasSubstr("unit 7?"));
  EXPECT_THAT(to_table(StepSchedule{}),
              HasSubstr("parameter slots (MiB): none"));
}

}  // namespace
}  // namespace accordion
