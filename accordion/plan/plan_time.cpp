// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>

#include "accordion/plan/collective_time.h"
#include "accordion/plan/offload_time.h"
#include "accordion/plan/operator_time.h"
#include "accordion/plan/pass_simulation.h"
#include "accordion/plan/plan.h"
#include "accordion/plan/real.h"
#include "accordion/plan/unit_times.h"

namespace accordion::plan {
namespace {

/// Bytes that a rank sends in a ring over `ranks` for `bytes` in all.
double ring_bytes(double bytes, int ranks) {
  return bytes * (ranks - 1) / ranks;
}

/// What the collectives of a pass send.
double bytes_sent(const StepSchedule& schedule, const Strategy& strategy) {
  const bool whole = strategy.sharding == Sharding::NoShard;
  const int ranks = whole ? 1 : strategy.shard_ranks();
  const int copies =
      whole ? strategy.data_ranks() * strategy.context : strategy.dp_replicate;
  double bytes = 0.0;
  int gathering = ranks;
  for (const Action& action : schedule.actions) {
    if (action.kind == ActionKind::Backward && strategy.secondary_shard > 0) {
      gathering = strategy.secondary_shard;
    }
    const ScheduledUnit& unit =
        schedule.units[static_cast<std::size_t>(action.unit)];
    if (action.kind == ActionKind::Unshard) {
      bytes += ring_bytes(static_cast<double>(unit.unsharded_bytes), gathering);
    } else if (action.kind == ActionKind::Reduce) {
      bytes += ring_bytes(static_cast<double>(unit.gradient_bytes), ranks);
    } else if (action.kind == ActionKind::AllReduce) {
      bytes +=
          2.0 * ring_bytes(static_cast<double>(unit.all_reduce_bytes), copies);
    }
  }
  return bytes;
}

PassResult run_pass(const PlanRequest& request, PassKind pass,
                    std::span<const UnitTimes> times) {
  std::vector<ScheduledUnit> units = units_of(request, pass);
  const std::vector<Action> markers = forward_backward_markers(units);
  const StepSchedule schedule = make_schedule(
      std::move(units), markers, {.depth = request.strategy.prefetch});
  PassResult result =
      simulate_pass(schedule, times, request.cluster.gpu.collective_share);
  result.bytes_sent = bytes_sent(schedule, request.strategy);
  return result;
}

void add_pass(const PassResult& pass, double count, TimePlan& time) {
  time.step_s += count * pass.seconds;
  time.forward_s += count * pass.forward;
  time.backward_s += count * pass.backward;
  time.contention_s += count * pass.contention;
  time.exposed_gather_s += count * pass.exposed_gather;
  time.exposed_reduce_s += count * pass.exposed_reduce;
  time.gather_s += count * pass.gather;
  time.reduce_s += count * pass.reduce;
  time.num_collectives += count * pass.num_collectives;
  time.collective_bytes += count * pass.bytes_sent;
}

/// Where a stage has a fraction of a layer more or less than another, the
/// schedule has whole layers; their cost is the average's.
void scale_to_stage(const PlanRequest& request, std::vector<UnitTimes>& times) {
  const double layers = real(static_cast<std::int64_t>(times.size()) - 1);
  const double share = layers_per_stage(request) / layers;
  for (std::size_t unit = 1; unit < times.size(); ++unit) {
    UnitTimes& layer = times[unit];
    for (double* part : {&layer.forward, &layer.backward, &layer.recompute,
                         &layer.tensor, &layer.context}) {
      *part *= share;
    }
  }
}

void add_passes(const PlanRequest& request, std::span<const UnitTimes> times,
                TimePlan& time) {
  const std::int64_t count = request.training.grad_accum;
  if (count == 1) {
    PassResult pass = run_pass(request, PassKind::Only, times);
    add_pass(pass, 1.0, time);
    time.events = std::move(pass.events);
    return;
  }
  add_pass(run_pass(request, PassKind::First, times), 1.0, time);
  if (count > 2) {
    add_pass(run_pass(request, PassKind::Middle, times), real(count - 2), time);
  }
  PassResult last = run_pass(request, PassKind::Last, times);
  add_pass(last, 1.0, time);
  time.events = std::move(last.events);
}

/// What the passes' computation contains besides operators.
void split_computation(const PlanRequest& request,
                       std::span<const UnitTimes> times, TimePlan& time) {
  const double count = real(request.training.grad_accum);
  for (const UnitTimes& unit : times) {
    time.recompute_s += count * unit.recompute;
    time.tensor_s += count * unit.tensor;
    time.context_s += count * unit.context;
  }
}

/// Stages wait for the first microbatch to arrive and the last to leave: all
/// others' time of one microbatch, divided among the stages of a rank.
void add_pipeline(const PlanRequest& request, TimePlan& time) {
  const Strategy& strategy = request.strategy;
  if (strategy.pipeline == 1) {
    return;
  }
  const Training& training = request.training;
  const double one =
      (time.forward_s + time.backward_s) / real(training.grad_accum);
  const double waits = strategy.pipeline - 1;
  const double hidden = 2.0 * real(training.micro_batch) *
                        real(training.seq_len) / strategy.context /
                        strategy.tensor * real(request.model.hidden_size);
  const int distance =
      static_cast<int>(strategy.num_gpus() / strategy.pipeline);
  time.pipeline_bubble_s =
      waits * one / strategy.stages_per_rank +
      2.0 * waits * send_time(hidden, distance, request.cluster);
  time.step_s += time.pipeline_bubble_s;
}

/// Reading gradients for their norm, scaling them, and one pass over
/// parameters, gradients and state; where a whole copy stays, gathering it.
void add_optimizer(const PlanRequest& request, TimePlan& time) {
  const Precision& precision = request.training.precision;
  const double params = stepped_params(request);
  const double each = 5.0 * precision.gradient_bytes +
                      2.0 * precision.parameter_bytes +
                      (precision.master_copy ? 8.0 : 0.0) +
                      2.0 * state_bytes(request.training.optimizer);
  const Offload& offload = request.strategy.offload;
  const bool on_host =
      offload.optimizer != OffloadTo::None && !offload.step_on_device;
  const GpuType& gpu = request.cluster.gpu;
  const auto measured = rate_at(gpu.measured, MeasuredKind::Optimizer,
                                ComputeType::Fp32, {params, 1.0, 1.0});
  const double on_device =
      measured ? params * each / *measured : memory_time(params * each, gpu);
  const double seconds =
      on_host ? params * each / request.cluster.host_memory_bytes_per_s
              : on_device;
  time.optimizer_s = seconds;
  time.step_s += seconds;
  if (keeps_whole_copy(request.strategy.sharding)) {
    const double gather = gather_time(
        params_of_rank(request) * precision.gather_bytes,
        precision.wire_type(precision.gather_bytes),
        shard_group(request.strategy, request.cluster), request.cluster);
    time.gather_s += gather;
    time.exposed_gather_s += gather;
    time.collective_bytes +=
        ring_bytes(params_of_rank(request) * precision.gather_bytes,
                   request.strategy.shard_ranks());
    time.num_collectives += gather > 0.0 ? 1.0 : 0.0;
    time.step_s += gather;
  }
}

void add_offload(const PlanRequest& request, TimePlan& time) {
  time.offload_s = offload_time(request, time);
  time.step_s += time.offload_s;
}

/// The expected slowest of n equal ones lies sqrt(2 ln n) standard deviations
/// above their mean (for normal speeds and large n).
void add_straggler(const PlanRequest& request, TimePlan& time) {
  const double ranks = real(request.strategy.num_gpus());
  time.straggler_s = request.cluster.gpu.speed_spread *
                     std::sqrt(2.0 * std::log(ranks)) *
                     (time.forward_s + time.backward_s);
  time.step_s += time.straggler_s;
}

}  // namespace

TimePlan plan_time(const PlanRequest& request) {
  std::vector<UnitTimes> times = times_of(request);
  scale_to_stage(request, times);
  TimePlan time;
  add_passes(request, times, time);
  split_computation(request, times, time);
  add_pipeline(request, time);
  add_straggler(request, time);
  add_optimizer(request, time);
  add_offload(request, time);
  return time;
}

}  // namespace accordion::plan
