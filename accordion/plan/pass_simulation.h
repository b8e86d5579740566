// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <vector>

#include "accordion/plan/time_plan.h"
#include "accordion/plan/unit_times.h"
#include "accordion/schedule/step_schedule.h"

namespace accordion::plan {

/// One pass as it ran on the streams, in seconds.
struct PassResult {
  double seconds = 0.0;         ///< until all streams are done
  double forward = 0.0;         ///< computation
  double backward = 0.0;        ///< computation
  double contention = 0.0;      ///< of both, lost beside collectives
  double exposed_gather = 0.0;  ///< computation waited for a gather
  double exposed_reduce = 0.0;  ///< for a slot of gradients, and at the end
  double gather = 0.0;          ///< the collectives themselves
  double reduce = 0.0;
  int num_collectives = 0;
  double bytes_sent = 0.0;  ///< by this rank; set by who knows the groups
  std::vector<StreamEvent> events;
};

/// Follows a schedule action by action.
///
/// // [Note: streams]
/// Computation, gathers and reductions each run one thing after another. A
/// gather starts when the computation that it was put behind in the schedule
/// starts, a reduction when its unit's backward is done, and neither before
/// what runs on its stream. Gathers and reductions of one pass share the links:
/// where they run at the same time they take turns. Computation waits for its
/// unit's gather, and for the reduction that still reads the slot in which its
/// gradients are to lie; at the end the pass waits for all.
///
/// A collective takes multiprocessors and memory traffic: beside it computation
/// runs at 1 - `collective_share` of its rate.
///
/// Requires  times.size() == schedule.units.size()
PassResult simulate_pass(const StepSchedule& schedule,
                         std::span<const UnitTimes> times,
                         double collective_share);

}  // namespace accordion::plan
