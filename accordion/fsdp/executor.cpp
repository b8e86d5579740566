// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/executor.h"

#include <algorithm>
#include <exception>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>

#include "accordion/fsdp/running_graph.h"
#include "accordion/module/activation_checkpoint.h"

namespace accordion {

namespace {

/// Runs once all checkpointed calls that lead to it have, and at once then. On
/// a device it is told by an empty tensor there: the engine would give a node
/// that gets none to the thread that called backward, beside the device's.
class RecomputedNode final : public torch::autograd::Node {
 public:
  RecomputedNode(c10::Device device, std::function<void()> tell)
      : Node(/*sequence_nr=*/UINT64_MAX), tell_(std::move(tell)) {
    if (device.is_cuda()) {
      add_input_metadata(at::empty({0}, at::device(device)));
    } else {
      add_input_metadata(undefined_input());
    }
  }

  torch::autograd::variable_list apply(
      torch::autograd::variable_list&& /*gradients*/) override {
    tell_();
    return {};
  }

 private:
  std::function<void()> tell_;
};

void cast_floating(std::span<at::Tensor* const> tensors,
                   c10::ScalarType dtype) {
  for (at::Tensor* tensor : tensors) {
    if (tensor->is_floating_point() && tensor->scalar_type() != dtype) {
      *tensor = tensor->to(dtype);
    }
  }
}

/// For the shards of all units, which then add theirs.
std::shared_ptr<PagedArrays> make_pages(
    const std::vector<Executor::UnitPlan>& plans, const FsdpOptions& options) {
  if (!options.offload || plans.front().groups.gather->runs_behind_host()) {
    return nullptr;
  }
  check_target(options.offload->to, "fully_shard");
  std::vector<std::int64_t> array_bytes;
  for (const Executor::UnitPlan& plan : plans) {
    const UnitLayout layout = layout_of(plan.members, options.precision,
                                        plan.groups.gather->world_size());
    for (const Section& section : layout.sections()) {
      if (plan.groups.sharded() && section.placement != Placement::Shard) {
        continue;
      }
      const int arrays =
          (options.offload->parameters ? 1 : 0) +
          (options.offload->gradients && section.requires_grad ? 1 : 0);
      array_bytes.insert(
          array_bytes.end(), static_cast<std::size_t>(arrays),
          section.numel_per_rank * element_bytes(section.stored_dtype));
    }
  }
  return std::make_shared<PagedArrays>(
      options.offload->to.fitted_to(array_bytes), "fully_shard");
}

}  // namespace

Executor::Executor(std::vector<UnitPlan> plans, const FsdpOptions& options,
                   std::shared_ptr<SlotPools> pools,
                   std::shared_ptr<Communicator> world)
    : options_(options),
      pages_(make_pages(plans, options)),
      activations_(options.activation_checkpointing &&
                           options.activation_checkpointing->offload
                       ? std::make_shared<OffloadedActivations>(
                             *options.activation_checkpointing->offload)
                       : nullptr),
      progress_(plans.size()),
      pools_(std::move(pools)),
      world_(std::move(world)),
      schedules_(
          {.depth = options.prefetch, .max_bytes = options.prefetch_bytes}) {
  for (UnitPlan& plan : plans) {
    settings_.push_back(plan.settings);
    reads_.push_back(std::move(plan.reads));
    units_.push_back(std::make_shared<FsdpUnit>(
        std::move(plan.members), std::move(plan.groups), options_, pages_,
        *this, static_cast<int>(units_.size())));
  }
}

void Executor::attach() {
  for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit) {
    unit_at(unit).attach();
    recomputed_.push_back(make_node<RecomputedNode>(
        unit_at(unit).groups().device(), [weak = weak_from_this(), unit] {
          if (const auto self = weak.lock()) {
            self->recomputed(unit);
          }
        }));
  }
  // Buffers are made before training starts, when running out of memory loses
  // nothing. A program that calls its units in another way needs others later.
  describe_pass();
  const StepSchedule schedule = make_schedule(
      pass_, forward_backward_markers(pass_),
      {.depth = options_.prefetch, .max_bytes = options_.prefetch_bytes});
  pools_->parameters.fit(schedule.parameter_slots);
  pools_->gradients.fit(schedule.gradient_slots);
  pools_->gradient_shards.fit(schedule.gradient_shard_slots);
}

// ---- Forward ---------------------------------------------------------------

void Executor::before_forward(int unit, std::span<at::Tensor* const> inputs) {
  Progress& progress = progress_of(unit);
  if (pass_open_ && end_queued_ && !inside_backward()) {
    abandon_pass();  // the last backward threw
  }
  if (const auto dtype = options_.precision.param_dtype;
      dtype && options_.precision.cast_forward_inputs) {
    cast_floating(inputs, *dtype);
  }
  std::shared_ptr<UnitCall> call;
  if (inside_backward()) {
    // In a checkpointed call around it: the gather serves backward too.
    begin_backward_of(unit);
  } else if (at::GradMode::is_enabled() || detail::in_first_call()) {
    pass_marker(ActionKind::Forward, unit);
  } else {
    ensure_unsharded(unit);
  }
  if (at::GradMode::is_enabled()) {
    call = std::make_shared<UnitCall>();
    call->listener = weak_from_this();
    call->unit = unit;
    watch_inputs(inputs, call);
  }
  progress.calls.push_back(std::move(call));
  ++progress.open_forwards;
}

void Executor::after_forward(int unit, std::span<at::Tensor* const> outputs) {
  end_forward(unit, outputs);
  if (!is_busy()) {
    await_readers();
  }
}

void Executor::end_forward(int unit, std::span<at::Tensor* const> outputs) {
  Progress& progress = progress_of(unit);
  const std::shared_ptr<UnitCall> call = std::move(progress.calls.back());
  progress.calls.pop_back();
  --progress.open_forwards;
  if (const auto dtype = options_.precision.output_dtype) {
    cast_floating(outputs, *dtype);
  }
  if (output_watch_) {
    output_watch_(unit, outputs);
  }
  const auto aliases = [this, unit](const at::Tensor& tensor) {
    return unit_at(unit).owns_memory_of(tensor);
  };
  if (call) {
    progress.wanted_by_backward |= watch_outputs(outputs, call, aliases);
    if (!inside_backward()) {
      pass_marker(ActionKind::ForwardEnd, unit);
    }
    return;
  }
  for (at::Tensor* output : outputs) {
    if (aliases(*output)) {
      *output = output->clone();
    }
  }
  if (detail::in_first_call() && !inside_backward()) {
    progress.wanted_by_backward = true;
    pass_marker(ActionKind::ForwardEnd, unit);
    return;
  }
  const bool stays = settings_of(unit).stays_in_evaluation;
  if (progress.open_forwards == 0 && !progress.wanted_by_backward &&
      !inside_backward() && !stays) {
    reshard(unit);
  }
}

void Executor::forward_threw(int unit) noexcept {
  Progress& progress = progress_of(unit);
  const bool recorded =
      progress.calls.back() != nullptr || detail::in_first_call();
  progress.calls.pop_back();
  --progress.open_forwards;
  if (inside_backward()) {
    return;
  }
  const bool outermost =
      std::all_of(progress_.begin(), progress_.end(),
                  [](const Progress& p) { return p.open_forwards == 0; });
  if (outermost) {
    abandon_pass();
  } else if (recorded) {
    // The unit around it may catch and go on.
    if (turns_) {
      unended_.push_back(unit);
    } else {
      leave_schedule({ActionKind::ForwardEnd, unit});
      recorded_.push_back({ActionKind::ForwardEnd, unit});
    }
  }
}

// ---- Backward --------------------------------------------------------------

void Executor::enter_backward(UnitCall& call) {
  begin_backward_of(call.unit);
  unit_at(call.unit).expect_gradients();
  for (const WeakNodePtr& input : call.inputs) {
    const NodePtr node = input.lock();
    progress_of(call.unit).pending_inputs +=
        node && backward_runs(*node) ? 1 : 0;
  }
  progress_of(call.unit).awaits_recomputed |=
      backward_runs(*recomputed_[static_cast<std::size_t>(call.unit)]);
}

void Executor::begin_backward_of(int unit) {
  queue_end_of_backward();
  Progress& progress = progress_of(unit);
  if (!progress.in_backward) {
    progress.in_backward = true;
    pass_marker(ActionKind::Backward, unit);
  }
}

void Executor::leave_backward(UnitCall& call) {
  Progress& progress = progress_of(call.unit);
  if (progress.in_backward) {
    --progress.pending_inputs;
    end_backward_if_complete(call.unit);
  }
}

void Executor::gradient_arrived(int unit) {
  end_backward_if_complete(unit);
}

void Executor::recomputed(int unit) {
  progress_of(unit).awaits_recomputed = false;
  end_backward_if_complete(unit);
}

void Executor::end_backward_if_complete(int unit) {
  Progress& progress = progress_of(unit);
  if (progress.in_backward && progress.pending_inputs == 0 &&
      !progress.awaits_recomputed && progress.open_forwards == 0 &&
      unit_at(unit).gradients_complete()) {
    pass_marker(ActionKind::BackwardEnd, unit);
  }
}

torch::autograd::edge_list Executor::recomputed_edges(int unit) {
  torch::autograd::edge_list edges;
  for (const int read : reads_[static_cast<std::size_t>(unit)]) {
    edges.emplace_back(recomputed_[static_cast<std::size_t>(read)], 0);
  }
  return edges;
}

/// Not in backward, which needs what it makes at once.
std::unique_ptr<KeptTensor> Executor::keep_argument(
    const at::Tensor& argument) {
  return activations_ && !inside_backward() ? activations_->keep(argument)
                                            : nullptr;
}

void Executor::before_recompute(int unit) {
  if (trace_) {
    trace_->begin(SpanKind::Recompute, unit);
  }
}

void Executor::after_recompute(int unit) noexcept {
  if (trace_) {
    trace_->end(SpanKind::Recompute, unit);
  }
}

void Executor::queue_end_of_backward() {
  if (end_queued_) {
    return;
  }
  end_queued_ = true;
  torch::autograd::Engine::get_default_engine().queue_callback(
      [weak = weak_from_this()] {
        if (const auto self = weak.lock()) {
          self->end_pass();
        }
      });
}

// ---- Markers ---------------------------------------------------------------

/// A unit's forward and backward, with all that the executor does inside them.
void Executor::trace_marker(ActionKind kind, int unit) {
  switch (kind) {
    case ActionKind::Forward:
      trace_->begin(SpanKind::Forward, unit);
      return;
    case ActionKind::ForwardEnd:
      trace_->end(SpanKind::Forward, unit);
      return;
    case ActionKind::Backward:
      trace_->begin(SpanKind::Backward, unit);
      return;
    case ActionKind::BackwardEnd:
      trace_->end(SpanKind::Backward, unit);
      return;
    default:
      return;
  }
}

void Executor::pass_marker(ActionKind kind, int unit) {
  if (trace_) {
    trace_marker(kind, unit);
  }
  if (!pass_open_) {
    begin_pass(Action{kind, unit});
  }
  if (kind == ActionKind::BackwardEnd) {
    Progress& progress = progress_of(unit);
    progress.in_backward = false;
    progress.pending_inputs = 0;
    progress.awaits_recomputed = false;
    progress.wanted_by_backward = false;
  }
  if (following_ && !matches(kind, unit) && is_inside(kind, unit)) {
    return;
  }
  if (matches(kind, unit) || join_up_to(kind, unit)) {
    recorded_.push_back({kind, unit});
    do_action(schedule_.actions[cursor_++]);
    run_actions();
    return;
  }
  if (turns_) {
    for (const int ended : std::exchange(unended_, {})) {
      take_turns(Action{ActionKind::ForwardEnd, ended});
    }
    take_turns(Action{kind, unit});
    return;
  }
  leave_schedule({kind, unit});
  recorded_.push_back({kind, unit});
  try {
    on_demand(kind, unit, progress_of(unit).open_forwards > 0);
  } catch (const CommError& error) {
    throw CommError(
        std::string(error.what()) +
        "\nThis rank left the schedule of its earlier passes at " +
        describe_marker(*left_at_, pass_) +
        ". Where ranks call other units from pass to pass, shard with "
        "FsdpOptions::static_graph = false.");
  }
}

bool Executor::is_busy() const {
  return inside_backward() ||
         std::any_of(progress_.begin(), progress_.end(),
                     [](const Progress& p) { return p.open_forwards > 0; });
}

}  // namespace accordion
