// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/schedule_cache.h"

#include <algorithm>

namespace accordion {

std::optional<Action> first_marker(const StepSchedule& schedule) {
  const auto first =
      std::find_if(schedule.actions.begin(), schedule.actions.end(),
                   [](const Action& action) { return is_marker(action.kind); });
  if (first == schedule.actions.end()) {
    return std::nullopt;
  }
  return Action{first->kind, first->unit};
}

const StepSchedule* ScheduleCache::find(const std::vector<ScheduledUnit>& units,
                                        const Action& first) {
  const StepSchedule* other = nullptr;
  for (auto i = schedules_.rbegin(); i != schedules_.rend(); ++i) {
    if (first_marker(*i) != first) {
      continue;
    }
    if (i->units == units) {
      return &*i;
    }
    other = other == nullptr ? &*i : other;
  }
  return other == nullptr ? nullptr : &make(units, markers_of(*other));
}

const StepSchedule& ScheduleCache::put(StepSchedule schedule) {
  const std::optional<Action> first = first_marker(schedule);
  std::erase_if(schedules_, [&](const StepSchedule& old) {
    return old.units == schedule.units && first_marker(old) == first;
  });
  if (schedules_.size() == kMost) {
    schedules_.erase(schedules_.begin());
  }
  schedules_.push_back(std::move(schedule));
  return schedules_.back();
}

const StepSchedule& ScheduleCache::make(const std::vector<ScheduledUnit>& units,
                                        const std::vector<Action>& markers) {
  return put(make_schedule(units, markers, prefetch_));
}

}  // namespace accordion
