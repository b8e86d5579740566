// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>

#include "accordion/plan/activation_memory.h"
#include "accordion/plan/plan.h"
#include "accordion/plan/unit_times.h"

namespace accordion::plan {
namespace {

/// Walks a pass, keeping what is held.
class MemoryWalk {
 public:
  MemoryWalk(const PlanRequest& request, bool has_logits, double in_flight)
      : request_(request),
        schedule_(make_pass(request)),
        saved_(saved_by_layer(request)),
        whole_(saved_by_whole_layer(request)),
        logits_(has_logits ? logits_memory(request) : 0.0),
        held_(state_memory(request)) {
    gradients_ = held_.gradients;
    held_.gradients = request.training.grad_accum > 1 ? gradients_ : 0.0;
    begin_pass();
    // Microbatches before this one, in a pipeline.
    held_.activations = (in_flight - 1.0) * saved_ * layers_per_stage(request);
    if (request.strategy.offload.activations != OffloadTo::None) {
      held_.activations = 0.0;
    }
  }

  MemoryPlan run() {
    point("start of forward");
    for (const Action& action : schedule_.actions) {
      apply(action);
    }
    held_.gradients = gradients_;
    point("optimizer");
    return std::move(plan_);
  }

 private:
  static StepSchedule make_pass(const PlanRequest& request) {
    const PassKind pass =
        request.training.grad_accum > 1 ? PassKind::Last : PassKind::Only;
    std::vector<ScheduledUnit> units = units_of(request, pass);
    const std::vector<Action> markers = forward_backward_markers(units);
    return make_schedule(std::move(units), markers,
                         {.depth = request.strategy.prefetch});
  }

  const ScheduledUnit& unit_of(const Action& action) const {
    return schedule_.units[static_cast<std::size_t>(action.unit)];
  }

  /// What microbatches before this one left: whole parameters, and whole
  /// gradients in the reduction's type where they are not reduced yet.
  void begin_pass() {
    const bool counted = keeps_whole_copy(request_.strategy.sharding) ||
                         request_.strategy.sharding == Sharding::NoShard;
    for (const ScheduledUnit& unit : schedule_.units) {
      if (unit.begins_unsharded) {
        held_.unsharded_parameters +=
            static_cast<double>(unit.parameter_slot_bytes());
      }
      if (unit.begins_with_gradient && !counted) {
        held_.unreduced_gradients += static_cast<double>(unit.gradient_bytes);
      }
    }
  }

  void point(std::string when) {
    plan_.timeline.push_back({std::move(when), held_});
    if (held_.total() > plan_.highest().total()) {
      plan_.peak = plan_.timeline.size() - 1;
    }
  }

  /// Gathered units are copied out of a buffer that lives until they are.
  void unshard(const Action& action) {
    const auto bytes =
        static_cast<double>(unit_of(action).parameter_slot_bytes());
    held_.unsharded_parameters += bytes;
    if (request_.stack.copies_around_collectives) {
      held_.communication_buffers =
          std::max(held_.communication_buffers, bytes);
    }
  }

  void apply(const Action& action) {
    const bool root = action.unit == 0;
    const std::string name = root ? "root" : unit_of(action).name;
    switch (action.kind) {
      case ActionKind::Unshard:
        unshard(action);
        return;
      case ActionKind::Reshard:
        held_.unsharded_parameters -=
            static_cast<double>(unit_of(action).parameter_slot_bytes());
        return;
      case ActionKind::Forward:
        if (!root) {
          held_.working = whole_ - saved_;
          point("forward of " + name);
          held_.working = 0.0;
          keep(saved_);
        }
        return;
      case ActionKind::ForwardEnd:
        if (root) {
          held_.logits = logits_;
          point("loss");
        }
        return;
      case ActionKind::Backward:
        backward(root, name);
        return;
      case ActionKind::BackwardEnd:
        held_.unreduced_gradients += unreduced(action);
        held_.logits = 0.0;
        held_.working = 0.0;
        if (!root) {
          keep(-saved_);
        }
        return;
      case ActionKind::FinishReduce:
        held_.unreduced_gradients -= unreduced(action);
        add_gradients(action);
        return;
      case ActionKind::Reduce:
      case ActionKind::AllReduce:
      case ActionKind::FinishAllReduce:
      case ActionKind::Step:
      case ActionKind::Offload:
        return;
    }
  }

  void backward(bool root, const std::string& name) {
    if (root) {
      point("backward of the head");
      held_.logits = 0.0;
      return;
    }
    held_.working = whole_ - saved_ + working_of_layer(request_);
    point("backward of " + name);
  }

  void keep(double bytes) {
    if (request_.strategy.offload.activations == OffloadTo::None) {
      held_.activations += bytes;
    }
  }

  /// Whole gradients in the computation's type, and where a reduction has
  /// another, or a buffer of its own, a copy in that.
  double unreduced(const Action& action) const {
    const Precision& precision = request_.training.precision;
    if (request_.strategy.shard_ranks() == 1 ||
        request_.strategy.sharding == Sharding::NoShard) {
      return 0.0;
    }
    const double params = static_cast<double>(unit_of(action).gradient_bytes) /
                          precision.reduce_bytes;
    const bool copies = request_.stack.copies_around_collectives ||
                        precision.reduce_bytes != precision.gather_bytes;
    return params *
           (precision.gather_bytes + (copies ? precision.reduce_bytes : 0.0));
  }

  void add_gradients(const Action& action) {
    if (request_.training.grad_accum > 1) {
      return;  // there since the first microbatch
    }
    double total = 0.0;
    for (const ScheduledUnit& unit : schedule_.units) {
      total += static_cast<double>(unit.gradient_bytes);
    }
    held_.gradients += gradients_ *
                       static_cast<double>(unit_of(action).gradient_bytes) /
                       total;
  }

  const PlanRequest& request_;
  StepSchedule schedule_;
  double saved_;
  double whole_;
  double logits_;
  DeviceMemory held_;
  double gradients_ = 0.0;
  MemoryPlan plan_;
};

/// What the device does not hold because it lies elsewhere.
void add_offloaded(const PlanRequest& request, MemoryPlan& plan) {
  const Offload offload = request.strategy.offload;
  const auto add = [&](OffloadTo place, double bytes) {
    if (place != OffloadTo::None) {
      (place == OffloadTo::Host ? plan.host_bytes : plan.disk_bytes) += bytes;
    }
  };
  PlanRequest other = request;
  other.strategy.offload = {};
  const double all = state_memory(other).total();
  other.strategy.offload.optimizer = offload.optimizer;
  other.strategy.offload.step_on_device = offload.step_on_device;
  const double without_optimizer = state_memory(other).total();
  add(offload.optimizer, all - without_optimizer);
  other.strategy.offload.gradients = offload.gradients;
  const double without_gradients = state_memory(other).total();
  add(offload.gradients, without_optimizer - without_gradients);
  add(offload.parameters, without_gradients - state_memory(request).total());
  add(offload.activations, microbatches_in_flight(request) *
                               saved_by_layer(request) *
                               layers_per_stage(request));
}

}  // namespace

MemoryPlan plan_memory(const PlanRequest& request) {
  const bool staged = request.strategy.pipeline > 1;
  MemoryPlan plan =
      MemoryWalk(request, !staged, microbatches_in_flight(request)).run();
  if (staged) {
    // The last stage holds one microbatch, and the logits.
    MemoryPlan last = MemoryWalk(request, true, 1.0).run();
    if (last.highest().total() > plan.highest().total()) {
      plan = std::move(last);
    }
  }
  add_offloaded(request, plan);
  plan.reserved_bytes =
      plan.highest().total() * (1.0 + request.stack.allocator_overhead);
  return plan;
}

}  // namespace accordion::plan
