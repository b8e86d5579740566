// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace accordion::plan {

struct PlanRequest;
struct TimePlan;

/// Seconds of a step that wait for what is offloaded: transfers run beside
/// computation and the optimizer, of which `time` has the seconds.
double offload_time(const PlanRequest& request, const TimePlan& time);

}  // namespace accordion::plan
