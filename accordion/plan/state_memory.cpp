// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "accordion/plan/plan.h"
#include "accordion/plan/unit_times.h"

namespace accordion::plan {
namespace {

/// Bytes of stored parameters for each that this rank owns: where a whole copy
/// stays, that is the stored one, and what is cut is its master copy.
double owned_bytes(const Precision& precision, const Strategy& strategy) {
  const bool steps_here = strategy.offload.optimizer == OffloadTo::None;
  const double master = precision.master_copy && steps_here ? 4.0 : 0.0;
  if (!keeps_whole_copy(strategy.sharding)) {
    return precision.parameter_bytes + master;
  }
  return precision.parameter_bytes > precision.gather_bytes
             ? precision.parameter_bytes
             : master;
}

}  // namespace

double DeviceMemory::total() const {
  double bytes = 0.0;
  for (const DeviceMemoryKind& kind : kDeviceMemoryKinds) {
    bytes += this->*kind.bytes;
  }
  return bytes;
}

DeviceMemory state_memory(double params, const Strategy& strategy,
                          const Training& training) {
  const Precision& precision = training.precision;
  const Sharding sharding = strategy.sharding;
  const double owned =
      sharding == Sharding::NoShard ? params : params / strategy.shard_ranks();
  const bool whole_gradient = sharding == Sharding::ShardOptimizer;
  DeviceMemory memory;
  memory.sharded_parameters = owned * owned_bytes(precision, strategy);
  memory.gradients =
      (whole_gradient ? params : owned) * precision.gradient_bytes;
  memory.optimizer = owned * state_bytes(training.optimizer);
  if (keeps_whole_copy(sharding)) {
    memory.unsharded_parameters = params * precision.gather_bytes;
  }
  if (strategy.secondary_shard > 0) {
    memory.unsharded_parameters +=
        params * precision.gather_bytes / strategy.secondary_shard;
  }
  if (strategy.offload.parameters != OffloadTo::None) {
    memory.sharded_parameters = 0.0;
  }
  if (strategy.offload.optimizer != OffloadTo::None) {
    memory.optimizer = 0.0;
    memory.gradients = strategy.offload.step_on_device ? memory.gradients : 0.0;
  }
  if (strategy.offload.gradients != OffloadTo::None) {
    memory.gradients = 0.0;
  }
  return memory;
}

DeviceMemory state_memory(const PlanRequest& request) {
  DeviceMemory memory =
      state_memory(params_of_rank(request), request.strategy, request.training);
  if (gathers_in_place(request)) {
    // The shards of all ranks, or this rank's part of the copy.
    const Precision& precision = request.training.precision;
    const bool copied = precision.gather_bytes != precision.parameter_bytes;
    memory.unsharded_parameters = copied ? params_of_rank(request) *
                                               precision.gather_bytes /
                                               request.strategy.shard_ranks()
                                         : 0.0;
  }
  if (request.training.step_in_backward) {
    // Only those of the unit that steps.
    memory.gradients /= std::max(1.0, layers_per_stage(request));
  }
  return memory;
}

}  // namespace accordion::plan
