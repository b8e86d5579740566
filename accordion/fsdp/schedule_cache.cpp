// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/schedule_cache.h"

#include <algorithm>

namespace accordion {

namespace {

/// The first marker of a schedule.
Action first_of(const StepSchedule& schedule) {
  const auto first =
      std::find_if(schedule.actions.begin(), schedule.actions.end(),
                   [](const Action& action) { return is_marker(action.kind); });
  return {first->kind, first->unit};
}

}  // namespace

const StepSchedule* ScheduleCache::find(const std::vector<ScheduledUnit>& units,
                                        const Action& first) {
  const StepSchedule* other = nullptr;
  for (auto i = schedules_.rbegin(); i != schedules_.rend(); ++i) {
    if (first_of(*i) != first) {
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
  const Action first = first_of(schedule);
  std::erase_if(schedules_, [&](const StepSchedule& old) {
    return old.units == schedule.units && first_of(old) == first;
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
