// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/report/run_cost.h"

namespace accordion::plan {

RunCost run_cost(const PlanRequest& request, const Plan& plan,
                 const Prices& prices) {
  const auto gpus = static_cast<double>(request.strategy.num_gpus());
  RunCost cost;
  cost.steps = prices.train_tokens / static_cast<double>(plan.tokens_per_step);
  cost.seconds = cost.steps * plan.time.step_s;
  cost.gpu_hours = gpus * cost.seconds / 3600.0;
  cost.kwh = cost.gpu_hours * request.cluster.gpu.power_w / 1000.0 *
             prices.power_factor;
  cost.gpu_cost = cost.gpu_hours * prices.gpu_hour_price;
  cost.energy_cost = cost.kwh * prices.kwh_price;
  return cost;
}

}  // namespace accordion::plan
