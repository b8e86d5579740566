// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/unit_times.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "accordion/plan/collective_time.h"
#include "accordion/plan/layer_operators.h"
#include "accordion/plan/operator_time.h"
#include "accordion/plan/plan.h"
#include "accordion/plan/real.h"
#include "accordion/plan/slot_copies.h"

namespace accordion::plan {
namespace {

OperatorMachine machine_of(const PlanRequest& request) {
  const Training& training = request.training;
  const ComputeType compute = training.precision.compute;
  const double tokens = real(training.micro_batch) * real(training.seq_len);
  return {request.cluster.gpu, request.stack, compute,
          rate_at(request.cluster.gpu.measured, MeasuredKind::Step, compute,
                  {tokens, real(request.model.hidden_size), 1.0})
              .value_or(1.0)};
}

/// Exposed time of a collective that belongs to a product of `beside` seconds:
/// all of it, or cut in as many parts as ranks, of which the first runs alone.
double exposed_tensor(double collective, double beside,
                      const Strategy& strategy) {
  if (!strategy.overlap_tensor) {
    return collective;
  }
  const double part = collective / strategy.tensor;
  return part + std::max(0.0, collective - part - beside);
}

/// Of one direction of a layer: hidden states are gathered before the first
/// and scattered behind the second product of attention and of feed-forward.
/// Without sequence parallelism two all-reduces move as much.
double tensor_time(const PlanRequest& request, double products) {
  const Strategy& strategy = request.strategy;
  if (strategy.tensor == 1) {
    return 0.0;
  }
  const Training& training = request.training;
  // What is gathered is cast first; what is summed on the way stays in 16 bits.
  const bool eight_bit = training.precision.compute == ComputeType::Fp8;
  const double hidden = (eight_bit ? 1.5 : 2.0) * real(training.micro_batch) *
                        real(training.seq_len) / strategy.context *
                        real(request.model.hidden_size);
  const double one = ring_time(hidden, tensor_group(strategy, request.cluster),
                               request.cluster);
  return 4.0 * exposed_tensor(one, products / 4.0, strategy);
}

/// Keys and values go around the ring while attention works on those it has.
double context_time(const PlanRequest& request, double attention,
                    double copies) {
  const Strategy& strategy = request.strategy;
  if (strategy.context == 1) {
    return 0.0;
  }
  const Training& training = request.training;
  const double bytes = copies * 2.0 * 2.0 * real(training.micro_batch) *
                       real(training.seq_len) / strategy.context *
                       real(request.model.kv_size()) / strategy.tensor;
  const GroupShape group = context_group(strategy, request.cluster);
  const double one = bytes / ring_rate(group, request.cluster);
  return (strategy.context - 1) *
         std::max(0.0, one - attention / strategy.context);
}

double time_of_kind(const std::vector<Operator>& operators, OperatorKind kind,
                    const OperatorMachine& machine) {
  double seconds = 0.0;
  for (const Operator& op : operators) {
    seconds += op.kind == kind ? operator_time(op, machine) : 0.0;
  }
  return seconds;
}

/// Gathered parameters are copied out of a buffer, gradients into one, on the
/// device's memory and so at computation's cost.
double copy_time(double bytes, const PlanRequest& request) {
  const bool copies = request.stack.copies_around_collectives &&
                      request.strategy.shard_ranks() > 1 &&
                      request.strategy.sharding != Sharding::NoShard;
  return copies ? memory_time(2.0 * bytes, request.cluster.gpu) : 0.0;
}

struct Collectives {
  double gather = 0.0;
  double gather_backward = 0.0;
  double reduce = 0.0;
  double all_reduce = 0.0;
};

Collectives collectives_of(double params, const PlanRequest& request) {
  const Strategy& strategy = request.strategy;
  const Cluster& cluster = request.cluster;
  const Precision& precision = request.training.precision;
  const GroupShape shard = shard_group(strategy, cluster);
  const double gathered = params * precision.gather_bytes;
  const double reduced = params * precision.reduce_bytes;
  Collectives times;
  if (strategy.sharding == Sharding::NoShard) {
    Strategy flat = strategy;
    flat.dp_shard = strategy.data_ranks();
    times.all_reduce =
        all_reduce_time(reduced, precision.wire_type(precision.reduce_bytes),
                        shard_group(flat, cluster), cluster);
    return times;
  }
  const ComputeType gather_type = precision.wire_type(precision.gather_bytes);
  times.gather = gather_time(gathered, gather_type, shard, cluster);
  times.gather_backward =
      strategy.secondary_shard > 0
          ? gather_time(gathered, gather_type,
                        secondary_group(strategy, cluster), cluster)
          : times.gather;
  times.reduce = reduce_time(
      reduced, precision.wire_type(precision.reduce_bytes), shard, cluster);
  const int replica_bytes = precision.bytes_between_replicas();
  times.all_reduce = all_reduce_time(
      params * replica_bytes / shard.ranks, precision.wire_type(replica_bytes),
      replicate_group(strategy, cluster), cluster);
  return times;
}

void add_collectives(double params, const PlanRequest& request,
                     UnitTimes& times) {
  const Collectives collectives = collectives_of(params, request);
  times.gather = collectives.gather;
  times.gather_backward = collectives.gather_backward;
  times.reduce = collectives.reduce;
  times.all_reduce = collectives.all_reduce;
}

UnitTimes layer_times(const PlanRequest& request) {
  const OperatorMachine machine = machine_of(request);
  const OperatorLists lists = layer_operators(request);
  const std::vector<Operator> again = recomputed(lists.forward, request);
  const Precision& precision = request.training.precision;
  const double params = layer_params_of_rank(request);
  UnitTimes times;
  times.forward = total_time(lists.forward, machine) +
                  copy_time(params * precision.gather_bytes, request);
  times.recompute =
      request.training.checkpointed_share * total_time(again, machine);
  times.backward = total_time(lists.backward, machine) + times.recompute +
                   copy_time(params * precision.gather_bytes, request) +
                   copy_time(params * precision.reduce_bytes, request);
  const auto products = [&](const std::vector<Operator>& operators) {
    return tensor_time(request,
                       time_of_kind(operators, OperatorKind::Product, machine));
  };
  const auto attention = [&](const std::vector<Operator>& operators) {
    return time_of_kind(operators, OperatorKind::Attention, machine);
  };
  const double forward_tensor = products(lists.forward);
  const double forward_context =
      context_time(request, attention(lists.forward), 1.0);
  const bool repeats = request.training.checkpointing == Checkpointing::Full;
  const double share = repeats ? request.training.checkpointed_share : 0.0;
  const double backward_tensor =
      products(lists.backward) + share * forward_tensor;
  const double backward_context =
      context_time(request, attention(lists.backward), 2.0) +
      share * forward_context;
  times.tensor = forward_tensor + backward_tensor;
  times.context = forward_context + backward_context;
  times.forward += forward_tensor + forward_context;
  times.backward += backward_tensor + backward_context;
  add_collectives(params, request, times);
  const SlotCopies copies = slot_copies(params, request, /*kept=*/false);
  times.forward += copies.forward;
  times.backward += copies.backward;
  return times;
}

/// With a pipeline the model's ends are on two of its stages: a stage has its
/// part of their work on average.
UnitTimes root_times(const PlanRequest& request) {
  const OperatorMachine machine = machine_of(request);
  const OperatorLists embedding = embedding_operators(request);
  const OperatorLists head = head_operators(request);
  const double share = 1.0 / request.strategy.pipeline;
  UnitTimes times;
  times.forward = share * total_time(embedding.forward, machine);
  times.forward_end = share * total_time(head.forward, machine);
  times.backward = share * total_time(head.backward, machine);
  times.backward_end = share * total_time(embedding.backward, machine);
  const double params = root_params_of_rank(request);
  const Precision& precision = request.training.precision;
  times.forward += copy_time(params * precision.gather_bytes, request);
  times.backward_end += copy_time(params * precision.reduce_bytes, request);
  add_collectives(params, request, times);
  const SlotCopies copies = slot_copies(params, request, /*kept=*/true);
  times.forward += copies.forward;
  times.backward_end += copies.backward;
  return times;
}

/// What depends on the strategy and the pass in a unit's description.
ScheduledUnit scheduled(std::string name, double params,
                        const PlanRequest& request, PassKind pass) {
  const Strategy& strategy = request.strategy;
  const Precision& precision = request.training.precision;
  const bool first = pass == PassKind::Only || pass == PassKind::First;
  const bool last = pass == PassKind::Only || pass == PassKind::Last;
  const auto bytes = [&](int each) {
    return static_cast<std::int64_t>(std::llround(params * each));
  };
  ScheduledUnit unit;
  unit.name = std::move(name);
  unit.gradient_bytes = bytes(precision.reduce_bytes);
  const bool whole = strategy.sharding == Sharding::NoShard ||
                     keeps_whole_copy(strategy.sharding);
  if (!whole && strategy.shard_ranks() > 1) {
    unit.unsharded_bytes = bytes(precision.gather_bytes);
    unit.in_place = gathers_in_place(request);
    unit.kept = strategy.sharding == Sharding::ShardGradOp;
    if (strategy.pipeline > 1) {
      // Stages keep parameters whole: they would be gathered for each of the
      // microbatches that are under way.
      unit.kept = true;
      unit.begins_unsharded = !first;
      unit.ends_unsharded = !last;
    }
  }
  const bool waits = strategy.sharding == Sharding::NoShard ||
                     strategy.sharding == Sharding::ShardOptimizer ||
                     strategy.pipeline > 1;
  if (waits) {
    unit.reduces = last;
    unit.begins_with_gradient = !first;
  }
  const bool replicated =
      strategy.dp_replicate > 1 || strategy.sharding == Sharding::NoShard;
  if (replicated && (last || (!strategy.defer_all_reduce && !waits))) {
    const int pieces =
        strategy.sharding == Sharding::NoShard ? 1 : strategy.shard_ranks();
    const bool whole_copies = strategy.sharding == Sharding::NoShard;
    unit.all_reduce_bytes =
        bytes(whole_copies ? precision.reduce_bytes
                           : precision.bytes_between_replicas()) /
        pieces;
  }
  return unit;
}

}  // namespace

bool gathers_in_place(const PlanRequest& request) {
  const Strategy& strategy = request.strategy;
  const Precision& precision = request.training.precision;
  return request.stack.gathers_in_place && request.cluster.is_cpu() &&
         strategy.sharding != Sharding::NoShard && strategy.shard_ranks() > 1 &&
         strategy.shard_ranks() <= request.cluster.gpus_per_host &&
         strategy.secondary_shard == 0 &&
         strategy.offload.parameters == OffloadTo::None &&
         (precision.gather_bytes == precision.parameter_bytes ||
          request.stack.copies_in_place);
}

double layers_per_stage(const PlanRequest& request) {
  return real(request.model.num_layers) / request.strategy.pipeline;
}

double layer_params_of_rank(const PlanRequest& request) {
  return real(request.model.layer_params()) / request.strategy.tensor;
}

double root_params_of_rank(const PlanRequest& request) {
  const double params =
      real(request.model.root_params()) / request.strategy.tensor;
  return request.strategy.pipeline > 1 ? params / 2.0 : params;
}

double params_of_rank(const PlanRequest& request) {
  return layers_per_stage(request) * layer_params_of_rank(request) +
         root_params_of_rank(request);
}

double stepped_params(const PlanRequest& request) {
  const bool whole = request.strategy.sharding == Sharding::NoShard;
  return params_of_rank(request) / (whole ? 1 : request.strategy.shard_ranks());
}

std::vector<ScheduledUnit> units_of(const PlanRequest& request, PassKind pass) {
  std::vector<ScheduledUnit> units;
  ScheduledUnit root =
      scheduled("", root_params_of_rank(request), request, pass);
  root.kept = root.unsharded_bytes > 0;
  if (request.training.precision.gather_bytes == 1) {
    root.unsharded_bytes *= 2;
  }
  units.push_back(std::move(root));
  const auto layers =
      static_cast<int>(std::ceil(layers_per_stage(request) - 1e-9));
  for (int layer = 0; layer < layers; ++layer) {
    units.push_back(scheduled(fmt::format("layers.{}", layer),
                              layer_params_of_rank(request), request, pass));
  }
  return units;
}

std::vector<UnitTimes> times_of(const PlanRequest& request) {
  const auto layers =
      static_cast<std::size_t>(std::ceil(layers_per_stage(request) - 1e-9));
  std::vector<UnitTimes> times(1 + layers, layer_times(request));
  times[0] = root_times(request);
  return times;
}

}  // namespace accordion::plan
