// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/schedule/slot_assignment.h"

#include <algorithm>
#include <deque>
#include <utility>

namespace accordion::detail {
namespace {

/// A kind of slots: which action takes one, which gives it back,
/// and what a unit needs.
struct SlotKind {
  ActionKind take;
  ActionKind give;
  ActionKind or_give;
  std::int64_t (*bytes)(const ScheduledUnit&);
};

constexpr SlotKind kParameters{
    ActionKind::Unshard, ActionKind::Reshard, ActionKind::Reshard,
    [](const ScheduledUnit& unit) { return unit.parameter_slot_bytes(); }};
constexpr SlotKind kGradients{
    ActionKind::Backward, ActionKind::FinishReduce, ActionKind::FinishReduce,
    [](const ScheduledUnit& unit) { return unit.gradient_bytes; }};
constexpr SlotKind kGradientShards{
    ActionKind::Reduce, ActionKind::Step, ActionKind::Offload,
    [](const ScheduledUnit& unit) { return unit.gradient_shard_bytes; }};

/// An action that takes a slot of one kind, or gives it back.
struct Event {
  std::size_t action = 0;
  int unit = 0;
  bool takes = false;
};

/// Of the slots taken in this pass: one that a unit holds from a pass before is
/// neither taken nor, when it is given back, ours.
std::vector<Event> events_of(const StepSchedule& schedule, const SlotKind& kind,
                             std::vector<bool> holds) {
  std::vector<Event> events;
  std::vector<bool> ours(holds.size(), false);
  for (std::size_t i = 0; i < schedule.actions.size(); ++i) {
    const Action& action = schedule.actions[i];
    const int unit = action.unit;
    if (kind.bytes(schedule.units[unit]) == 0) {
      continue;
    }
    if (action.kind == kind.take && !holds[unit]) {
      events.push_back({.action = i, .unit = unit, .takes = true});
      holds[unit] = ours[unit] = true;
    } else if (action.kind == kind.give || action.kind == kind.or_give) {
      if (ours[unit]) {
        events.push_back({.action = i, .unit = unit, .takes = false});
      }
      holds[unit] = ours[unit] = false;
    }
  }
  return events;
}

/// The units whose slot stays taken after the pass, or during which another one
/// is taken and given back.
std::vector<bool> long_holders(const std::vector<Event>& events,
                               std::size_t num_units) {
  std::vector<bool> long_holder(num_units, false);
  std::vector<int> taken_at(num_units, -1);
  int taken = 0;
  int latest_returned = -1;  // when the slot was taken that came back
  for (const Event& event : events) {
    int& since = taken_at[event.unit];
    if (event.takes) {
      since = taken++;
      continue;
    }
    long_holder[event.unit] =
        long_holder[event.unit] || latest_returned > since;
    latest_returned = std::max(latest_returned, std::exchange(since, -1));
  }
  for (std::size_t unit = 0; unit < num_units; ++unit) {
    long_holder[unit] = long_holder[unit] || taken_at[unit] >= 0;
  }
  return long_holder;
}

/// Gives every unit with has_own a slot; appends it to `slots`.
void assign_own(StepSchedule& schedule, const SlotKind& kind,
                const std::vector<Event>& events,
                const std::vector<bool>& has_own,
                std::vector<std::int64_t>& slots) {
  std::vector<int> slot_of(has_own.size(), -1);
  for (const Event& event : events) {
    if (!event.takes || !has_own[event.unit]) {
      continue;
    }
    if (slot_of[event.unit] < 0) {
      slot_of[event.unit] = static_cast<int>(slots.size());
      slots.push_back(kind.bytes(schedule.units[event.unit]));
    }
    schedule.actions[event.action].slot = slot_of[event.unit];
  }
}

/// Shares slots of one size among the other units; appends them.
void assign_shared(StepSchedule& schedule, const SlotKind& kind,
                   std::vector<Event> events, const std::vector<bool>& has_own,
                   int spare, std::vector<std::int64_t>& slots) {
  std::erase_if(events,
                [&](const Event& event) { return has_own[event.unit]; });
  std::int64_t bytes = 0;
  int taken = 0;
  int in_use = 0;
  int most = 0;
  for (const Event& event : events) {
    bytes = std::max(bytes, kind.bytes(schedule.units[event.unit]));
    taken += event.takes ? 1 : 0;
    in_use += event.takes ? 1 : -1;
    most = std::max(most, in_use);
  }
  std::deque<int> free;  // the one that has been free longest is in front
  for (int i = 0; i < std::min(most + spare, taken); ++i) {
    free.push_back(static_cast<int>(slots.size()));
    slots.push_back(bytes);
  }
  std::vector<int> slot_of(has_own.size(), -1);
  for (const Event& event : events) {
    if (event.takes) {
      slot_of[event.unit] = free.front();
      free.pop_front();
      schedule.actions[event.action].slot = slot_of[event.unit];
    } else {
      free.push_back(slot_of[event.unit]);
    }
  }
}

/// Makes each slot as large as the largest unit that takes it.
void shrink(const StepSchedule& schedule, const SlotKind& kind,
            const std::vector<Event>& events,
            std::vector<std::int64_t>& slots) {
  std::fill(slots.begin(), slots.end(), 0);
  for (const Event& event : events) {
    if (event.takes) {
      std::int64_t& bytes = slots[schedule.actions[event.action].slot];
      bytes = std::max(bytes, kind.bytes(schedule.units[event.unit]));
    }
  }
}

}  // namespace

void assign_slots(StepSchedule& schedule, int spare) {
  std::vector<bool> whole, with_gradient, kept;
  for (const ScheduledUnit& unit : schedule.units) {
    whole.push_back(unit.begins_unsharded);
    with_gradient.push_back(unit.begins_with_gradient);
    kept.push_back(unit.kept || unit.ends_unsharded);
  }
  const auto parameters = events_of(schedule, kParameters, whole);
  schedule.parameter_slots.clear();
  assign_own(schedule, kParameters, parameters, kept, schedule.parameter_slots);
  assign_shared(schedule, kParameters, parameters, kept, spare,
                schedule.parameter_slots);

  const auto gradients = events_of(schedule, kGradients, with_gradient);
  const auto own = long_holders(gradients, schedule.units.size());
  schedule.gradient_slots.clear();
  assign_own(schedule, kGradients, gradients, own, schedule.gradient_slots);
  assign_shared(schedule, kGradients, gradients, own, 0,
                schedule.gradient_slots);

  const std::vector<bool> none(schedule.units.size(), false);
  const auto shards = events_of(schedule, kGradientShards, none);
  schedule.gradient_shard_slots.clear();
  assign_shared(schedule, kGradientShards, shards, none, 0,
                schedule.gradient_shard_slots);
  shrink(schedule, kGradientShards, shards, schedule.gradient_shard_slots);
}

}  // namespace accordion::detail
