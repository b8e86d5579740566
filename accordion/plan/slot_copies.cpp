// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/slot_copies.h"

#include "accordion/plan/operator_time.h"
#include "accordion/plan/plan.h"

namespace accordion::plan {
namespace {

/// Of so many elements, from bytes each to bytes each. A processor reads what
/// it is about to write into its caches first.
double copy_time(double numel, int from, int to, const Cluster& cluster) {
  const int read = from + (cluster.is_cpu() ? to : 0);
  return memory_time(numel * (read + to), cluster.gpu);
}

/// Of a rank with whole parameters.
SlotCopies lone_copies(double params, const PlanRequest& request, bool kept) {
  const Strategy& strategy = request.strategy;
  const Precision& precision = request.training.precision;
  const bool whole = strategy.sharding == Sharding::NoShard;
  if (!request.stack.lone_ranks_use_slots ||
      (!whole && strategy.shard_ranks() > 1)) {
    return {};
  }
  const double cast = precision.gather_bytes == precision.parameter_bytes
                          ? 0.0
                          : copy_time(params, precision.parameter_bytes,
                                      precision.gather_bytes, request.cluster);
  if (whole) {
    return {.forward = cast};
  }
  const double gradients = copy_time(params, precision.reduce_bytes,
                                     precision.gradient_bytes, request.cluster);
  const bool again = strategy.sharding == Sharding::FullShard && !kept;
  return {.forward = cast, .backward = gradients + (again ? cast : 0.0)};
}

/// Between slots and the buffers through which offloaded shards pass.
SlotCopies buffer_copies(double params, const PlanRequest& request, bool kept) {
  if (!request.stack.reads_offloaded_ahead) {
    return {};
  }
  const Offload& offload = request.strategy.offload;
  const Precision& precision = request.training.precision;
  const double shard = params / request.strategy.shard_ranks();
  const auto copy = [&](OffloadTo place, int from, int to) {
    return place == OffloadTo::None
               ? 0.0
               : copy_time(shard, from, to, request.cluster);
  };
  const double parameters = copy(offload.parameters, precision.parameter_bytes,
                                 precision.gather_bytes);
  const double gradients = copy(offload.gradients, precision.gradient_bytes,
                                precision.gradient_bytes);
  const bool again = request.strategy.sharding == Sharding::FullShard && !kept;
  return {.forward = parameters,
          .backward = gradients + (again ? parameters : 0.0)};
}

}  // namespace

SlotCopies slot_copies(double params, const PlanRequest& request, bool kept) {
  const SlotCopies lone = lone_copies(params, request, kept);
  const SlotCopies buffers = buffer_copies(params, request, kept);
  return {.forward = lone.forward + buffers.forward,
          .backward = lone.backward + buffers.backward};
}

}  // namespace accordion::plan
