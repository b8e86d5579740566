// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/schedule/slot_assignment.h"

#include <algorithm>
#include <deque>

namespace accordion::detail {
namespace {

/// One of the two kinds of slots: which action takes one, which gives it back,
/// and what a unit needs.
struct SlotKind {
  ActionKind take;
  ActionKind give;
  std::int64_t ScheduledUnit::*bytes;
  int spare;
};

/// The slots that units which are not kept share.
struct SharedSlots {
  std::int64_t bytes = 0;
  int count = 0;
};

SharedSlots shared_slots(const StepSchedule& schedule, const SlotKind& kind) {
  SharedSlots slots;
  int taken = 0;
  int in_use = 0;
  for (const Action& action : schedule.actions) {
    const ScheduledUnit& unit = schedule.units[action.unit];
    if (unit.kept || unit.*kind.bytes == 0) {
      continue;
    }
    if (action.kind == kind.take) {
      ++taken;
      slots.count = std::max(slots.count, ++in_use);
      slots.bytes = std::max(slots.bytes, unit.*kind.bytes);
    } else if (action.kind == kind.give) {
      --in_use;
    }
  }
  slots.count = std::min(slots.count + kind.spare, taken);
  return slots;
}

/// Sets the slots of the actions that take one; returns the slots' bytes.
std::vector<std::int64_t> assign(StepSchedule& schedule, const SlotKind& kind) {
  std::vector<std::int64_t> slots;
  std::vector<int> slot_of(schedule.units.size(), -1);
  for (std::size_t i = 0; i < schedule.units.size(); ++i) {
    const ScheduledUnit& unit = schedule.units[i];
    if (unit.kept && unit.*kind.bytes > 0) {
      slot_of[i] = static_cast<int>(slots.size());
      slots.push_back(unit.*kind.bytes);
    }
  }
  const SharedSlots shared = shared_slots(schedule, kind);
  std::deque<int> free;  // the one that has been free longest is in front
  for (int i = 0; i < shared.count; ++i) {
    free.push_back(static_cast<int>(slots.size()));
    slots.push_back(shared.bytes);
  }
  for (Action& action : schedule.actions) {
    const ScheduledUnit& unit = schedule.units[action.unit];
    const bool shares = !unit.kept && unit.*kind.bytes > 0;
    if (action.kind == kind.take) {
      if (shares) {
        slot_of[action.unit] = free.front();
        free.pop_front();
      }
      action.slot = slot_of[action.unit];
    } else if (action.kind == kind.give && shares) {
      free.push_back(slot_of[action.unit]);
    }
  }
  return slots;
}

}  // namespace

void assign_slots(StepSchedule& schedule, int spare) {
  schedule.parameter_slots =
      assign(schedule, {ActionKind::Unshard, ActionKind::Reshard,
                        &ScheduledUnit::unsharded_bytes, spare});
  schedule.gradient_slots =
      assign(schedule, {ActionKind::Backward, ActionKind::FinishReduce,
                        &ScheduledUnit::gradient_bytes, 0});
}

}  // namespace accordion::detail
