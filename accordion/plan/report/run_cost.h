// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "accordion/plan/plan.h"
#include "accordion/plan/question/plan_settings.h"

namespace accordion::plan {

/// What training on a number of tokens takes, at the plan's speed throughout:
/// no restarts, evaluations or checkpoints.
struct RunCost {
  double steps = 0.0;
  double seconds = 0.0;
  double gpu_hours = 0.0;
  /// Boards at their power limit all the time, times Prices::power_factor.
  double kwh = 0.0;
  double gpu_cost = 0.0;     ///< 0 where no price was stated
  double energy_cost = 0.0;  ///< 0 where no price was stated
};

RunCost run_cost(const PlanRequest& request, const Plan& plan,
                 const Prices& prices);

}  // namespace accordion::plan
