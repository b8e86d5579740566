// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "accordion/plan/question/plan_question.h"

namespace accordion::plan {

/// How far settings reach: those of the question, then with all layers
/// checkpointed, then with all state on the host besides.
struct Limit {
  std::vector<std::string> keys;  ///< that were added to the question's
  /// The largest model, or the fewest GPUs; none where nothing fits.
  std::optional<PlanRequest> request;
  Plan plan;  ///< where there is a request
};

/// The largest Llama by the rule of model_for_params() that fits the cluster.
std::vector<Limit> max_model(const PlanQuestion& question);

/// The fewest GPUs of the cluster's type that the model fits: one host with 1
/// to as many as the cluster's, then up to `max_gpus` in hosts of that size.
/// Stated data axes are left aside: the mesh follows the GPUs.
std::vector<Limit> min_gpus(const PlanQuestion& question, int max_gpus = 16384);

}  // namespace accordion::plan
