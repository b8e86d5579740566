// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/zero_formulas.h"

#include <algorithm>

#include "accordion/plan/memory_plan.h"
#include "accordion/plan/training.h"

namespace accordion::plan {
namespace {

// Headroom that the estimators add on the host.
constexpr double kHostFactor = 1.5;

DeepSpeedAnswer stage_2(const DeepSpeedQuestion& q) {
  const double gpu = q.optimizer_on_host
                         ? 2.0 * q.params
                         : 4.0 * q.params + 16.0 * q.params / q.gpus;
  const double host =
      q.params *
      (q.optimizer_on_host ? std::max(4.0 * q.gpus, 16.0) : 4.0 * q.gpus);
  return {gpu, host * kHostFactor};
}

/// What the host holds for each parameter when they are made cut.
double stage_3_host(const DeepSpeedQuestion& q) {
  if (!q.optimizer_on_host) {
    return q.largest_layer_params * 4.0 * q.gpus;
  }
  return q.params * (q.parameters_on_host ? 18.0 : 16.0);
}

DeepSpeedAnswer stage_3(const DeepSpeedQuestion& q) {
  const double layer = 4.0 * q.largest_layer_params;
  const double shard = q.params / q.gpus;
  const double gpu = q.parameters_on_host  ? layer
                     : q.optimizer_on_host ? layer + 2.0 * shard
                                           : layer + 18.0 * shard;
  double host = stage_3_host(q);
  if (!q.zero_init) {
    // Each process makes the whole model first, in fp32.
    host = std::max(host, q.params * 4.0 * q.gpus);
  }
  return {gpu, host * kHostFactor};
}

}  // namespace

double zero_paper_bytes(double params, int ranks, Sharding sharding) {
  Training training;
  training.precision = {.compute = ComputeType::Fp16,
                        .parameter_bytes = 2,
                        .master_copy = true,
                        .gather_bytes = 2,
                        .gradient_bytes = 2,
                        .reduce_bytes = 2};
  Strategy strategy;
  strategy.sharding = sharding;
  strategy.dp_shard = ranks;
  return state_memory(params, strategy, training).total();
}

DeepSpeedAnswer deepspeed_estimate(const DeepSpeedQuestion& question) {
  return question.stage == 2 ? stage_2(question) : stage_3(question);
}

}  // namespace accordion::plan
