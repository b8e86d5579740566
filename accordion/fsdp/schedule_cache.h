// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <vector>

#include "accordion/schedule/step_schedule.h"

namespace accordion {

/// The marker with which a schedule's program begins; none where there is none.
[[nodiscard]] std::optional<Action> first_marker(const StepSchedule& schedule);

/// The schedules of a module's passes: one for each kind of pass ([Note: pass])
/// and each program, told apart by its first marker.
///
/// Every rank asks the same in the same order and gets the same.
class ScheduleCache {
 public:
  explicit ScheduleCache(const Prefetch& prefetch) : prefetch_(prefetch) {}

  /// The schedule for a pass over `units` that begins with `first`; made from
  /// that of another kind of pass where only such is known. Null where the
  /// program is unknown. Valid until the next call of find, put or clear.
  const StepSchedule* find(const std::vector<ScheduledUnit>& units,
                           const Action& first);

  /// Remembers a schedule in place of one of the same pass and program.
  const StepSchedule& put(StepSchedule schedule);

  /// Makes and remembers the schedule of a program.
  const StepSchedule& make(const std::vector<ScheduledUnit>& units,
                           const std::vector<Action>& markers);

  void clear() { schedules_.clear(); }

 private:
  /// Programs that change all the time would fill memory.
  static constexpr std::size_t kMost = 16;

  Prefetch prefetch_;
  std::vector<StepSchedule> schedules_;  // the latest last
};

}  // namespace accordion
