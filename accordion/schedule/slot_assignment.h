// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "accordion/schedule/step_schedule.h"

namespace accordion::detail {

/// Gives each Unshard and Backward of a schedule its slot, and the schedule the
/// slots it needs ([Note: slots] of step_schedule.h). `spare` is the number of
/// slots for parameters beyond those in use at a time.
void assign_slots(StepSchedule& schedule, int spare);

}  // namespace accordion::detail
