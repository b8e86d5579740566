// SPDX-License-Identifier: BSD-3-Clause
//
// What holds for every program: random units, called in random order.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "tests/schedule/schedule_support.h"

namespace accordion {
namespace {

constexpr unsigned kSeed = 20240612;

std::vector<ScheduledUnit> random_units(std::mt19937& random) {
  std::vector<ScheduledUnit> units =
      testing::decoder(static_cast<int>(random() % 7));
  for (ScheduledUnit& unit : units) {
    unit.unsharded_bytes = static_cast<std::int64_t>(random() % 5) * 8;
    unit.gradient_bytes = static_cast<std::int64_t>(random() % 4) * 8;
    unit.kept = random() % 4 == 0;
    unit.all_reduce_bytes = static_cast<std::int64_t>(random() % 2) * 8;
    unit.in_place = random() % 4 == 0;
    unit.begins_unsharded = unit.unsharded_bytes > 0 && random() % 4 == 0;
    unit.ends_unsharded = unit.unsharded_bytes > 0 && random() % 4 == 0;
    unit.begins_with_gradient = unit.gradient_bytes > 0 && random() % 4 == 0;
    unit.reduces = random() % 4 != 0;
    unit.offloads_gradient = random() % 2 == 0;
    if (unit.reduces && (unit.offloads_gradient || !unit.ends_unsharded) &&
        random() % 2 == 0) {
      unit.gradient_shard_bytes = unit.gradient_bytes / 2;
    }
    if (random() % 4 == 0) {
      unit.forward_prefetch = {{static_cast<int>(random() % units.size())}};
    }
  }
  return units;
}

void call(int unit, int depth, int num_units, std::mt19937& random,
          std::vector<Action>& markers) {
  markers.push_back({ActionKind::Forward, unit});
  const int calls = depth > 2 ? 0 : static_cast<int>(random() % 4);
  for (int i = 0; i < calls; ++i) {
    call(static_cast<int>(random() % num_units), depth + 1, num_units, random,
         markers);
  }
  markers.push_back({ActionKind::ForwardEnd, unit});
}

/// Nested and repeated calls, then backward of the units called: each begins
/// and ends once, in any order, overlapping with others.
std::vector<Action> random_markers(int num_units, std::mt19937& random) {
  std::vector<Action> markers;
  call(0, 0, num_units, random, markers);
  std::vector<int> open;
  std::vector<int> waiting;
  for (int unit = 0; unit < num_units; ++unit) {
    if (std::count(markers.begin(), markers.end(),
                   Action{ActionKind::Forward, unit}) > 0 &&
        random() % 8 != 0) {
      waiting.push_back(unit);
    }
  }
  std::shuffle(waiting.begin(), waiting.end(), random);
  while (!waiting.empty() || !open.empty()) {
    if (open.empty() || (!waiting.empty() && random() % 2 == 0)) {
      open.push_back(waiting.back());
      markers.push_back({ActionKind::Backward, waiting.back()});
      waiting.pop_back();
    } else {
      const auto unit = open.begin() + random() % open.size();
      markers.push_back({ActionKind::BackwardEnd, *unit});
      open.erase(unit);
    }
  }
  return markers;
}

struct Case {
  std::vector<Action> markers;
  int prefetch = 0;
  StepSchedule schedule;
};

/// Calls check(case) for random programs at prefetch 0 to 3.
template <class Check>
void for_random_programs(const Check& check) {
  std::mt19937 random(kSeed);
  for (int program = 0; program < 2000; ++program) {
    const std::vector<ScheduledUnit> units = random_units(random);
    const std::vector<Action> markers =
        random_markers(static_cast<int>(units.size()), random);
    for (int prefetch = 0; prefetch < 4; ++prefetch) {
      const StepSchedule schedule =
          make_schedule(units, markers, {.depth = prefetch});
      SCOPED_TRACE("seed " + std::to_string(kSeed) + ", program " +
                   std::to_string(program) + ", prefetch " +
                   std::to_string(prefetch));
      check(Case{markers, prefetch, schedule});
      if (::testing::Test::HasFailure()) {
        return;
      }
    }
  }
}

std::int64_t sum(const std::vector<std::int64_t>& values) {
  std::int64_t total = 0;
  for (const std::int64_t value : values) {
    total += value;
  }
  return total;
}

TEST(ScheduleProperty, EverySchedulePassesValidate) {
  for_random_programs(
      [](const Case& c) { ASSERT_EQ(validate(c.schedule), ""); });
}

TEST(ScheduleProperty, MarkersKeepTheirOrder) {
  for_random_programs([](const Case& c) {
    std::vector<Action> markers;
    for (Action action : c.schedule.actions) {
      if (is_marker(action.kind)) {
        action.slot = -1;
        markers.push_back(action);
      }
    }
    ASSERT_EQ(markers, c.markers);
  });
}

// Independent of validate(): who holds which slot, from Unshard to Reshard and
// from Backward to FinishReduce and from Reduce to Step or Offload.
TEST(ScheduleProperty, NoSlotIsUsedTwiceAtATime) {
  for_random_programs([](const Case& c) {
    std::map<int, int> parameters;  // slot -> unit
    std::map<int, int> gradients;
    std::map<int, int> shards;
    for (const auto& [kind, unit, slot] : c.schedule.actions) {
      const auto is_unit = [u = unit](const auto& use) {
        return use.second == u;
      };
      if (kind == ActionKind::Unshard && c.schedule.units[unit].in_place) {
        ASSERT_EQ(slot, -1);
      } else if (kind == ActionKind::Unshard) {
        ASSERT_TRUE(parameters.emplace(slot, unit).second);
      } else if (kind == ActionKind::Reshard &&
                 !c.schedule.units[unit].in_place) {
        const bool from_before = c.schedule.units[unit].begins_unsharded;
        ASSERT_GE(std::erase_if(parameters, is_unit), from_before ? 0u : 1u);
      } else if (kind == ActionKind::Backward && slot >= 0) {
        ASSERT_TRUE(gradients.emplace(slot, unit).second);
      } else if (kind == ActionKind::FinishReduce) {
        const bool from_before = c.schedule.units[unit].begins_with_gradient;
        ASSERT_GE(std::erase_if(gradients, is_unit), from_before ? 0u : 1u);
      } else if (kind == ActionKind::Reduce && slot >= 0) {
        ASSERT_TRUE(shards.emplace(slot, unit).second);
        ASSERT_GE(c.schedule.gradient_shard_slots[slot],
                  c.schedule.units[unit].gradient_shard_bytes);
      } else if (kind == ActionKind::Step || kind == ActionKind::Offload) {
        ASSERT_EQ(std::erase_if(shards, is_unit), 1u);
      }
    }
    for (const auto& [slot, unit] : parameters) {
      ASSERT_TRUE(c.schedule.units[unit].ends_unsharded);
    }
    for (const auto& [slot, unit] : gradients) {
      ASSERT_FALSE(c.schedule.units[unit].reduces);
    }
    ASSERT_TRUE(shards.empty());
  });
}

TEST(ScheduleProperty, SlotsHoldThePeak) {
  for_random_programs([](const Case& c) {
    std::int64_t held = 0;
    for (const ScheduledUnit& unit : c.schedule.units) {
      held += unit.begins_unsharded ? unit.parameter_slot_bytes() : 0;
    }
    ASSERT_LE(peak_unsharded_bytes(c.schedule),
              held + sum(c.schedule.parameter_slots));
  });
}

TEST(ScheduleProperty, UnitsStepOrOffloadOncePerReductionWhereTheyAreTo) {
  for_random_programs([](const Case& c) {
    for (int unit = 0; unit < static_cast<int>(c.schedule.units.size());
         ++unit) {
      const auto count = [&](ActionKind kind) {
        return std::count_if(
            c.schedule.actions.begin(), c.schedule.actions.end(),
            [&](const Action& action) {
              return action.kind == kind && action.unit == unit;
            });
      };
      const ScheduledUnit& is = c.schedule.units[unit];
      const auto reductions = count(ActionKind::Reduce);
      const bool frees = is.gradient_shard_bytes > 0;
      ASSERT_EQ(count(ActionKind::Step),
                frees && !is.offloads_gradient ? reductions : 0);
      ASSERT_EQ(count(ActionKind::Offload),
                frees && is.offloads_gradient ? reductions : 0);
    }
  });
}

TEST(ScheduleProperty, KeptUnitIsGatheredOnce) {
  for_random_programs([](const Case& c) {
    for (int unit = 0; unit < static_cast<int>(c.schedule.units.size());
         ++unit) {
      const auto gathers = std::count_if(
          c.schedule.actions.begin(), c.schedule.actions.end(),
          [&](const Action& action) {
            return action.kind == ActionKind::Unshard && action.unit == unit;
          });
      if (c.schedule.units[unit].kept) {
        ASSERT_LE(gathers, 1);
      }
    }
  });
}

TEST(ScheduleProperty, DecoderHoldsPrefetchPlusOneUnitsBesideTheRoot) {
  for (int blocks = 1; blocks <= 12; ++blocks) {
    for (int prefetch = 0; prefetch < 5; ++prefetch) {
      const StepSchedule schedule = testing::decoder_schedule(blocks, prefetch);
      const int held = std::min(blocks, prefetch + 1);
      EXPECT_EQ(peak_unsharded_bytes(schedule), 100 + 10 * held)
          << blocks << " blocks, prefetch " << prefetch;
      const std::size_t slots = schedule.parameter_slots.size();
      EXPECT_LE(slots, 1u + held + (prefetch > 0 ? 1 : 0));
      EXPECT_GE(slots, 1u + held);
    }
  }
}

TEST(ScheduleProperty, DecoderGathersTwiceExceptForTheLastUnits) {
  for (int blocks = 1; blocks <= 12; ++blocks) {
    for (int prefetch = 0; prefetch < 5; ++prefetch) {
      const StepSchedule schedule = testing::decoder_schedule(blocks, prefetch);
      const auto gathers = std::count_if(
          schedule.actions.begin(), schedule.actions.end(),
          [](const Action& action) {
            return action.kind == ActionKind::Unshard && action.unit > 0;
          });
      const int stay = std::min(blocks, 1 + prefetch / 2);
      EXPECT_EQ(gathers, 2 * blocks - stay);
    }
  }
}

}  // namespace
}  // namespace accordion
