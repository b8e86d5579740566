// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/executor.h"

#include <algorithm>
#include <exception>

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

namespace accordion {

namespace {

constexpr int kNoSlot = SlotPool::kAnySlot;

bool inside_backward() {
  return torch::autograd::get_current_graph_task_id() != -1;
}

void cast_floating(std::span<at::Tensor* const> tensors,
                   c10::ScalarType dtype) {
  for (at::Tensor* tensor : tensors) {
    if (tensor->is_floating_point() && tensor->scalar_type() != dtype) {
      *tensor = tensor->to(dtype);
    }
  }
}

}  // namespace

Executor::Executor(std::vector<UnitPlan> plans, const FsdpOptions& options)
    : options_(options),
      plans_(std::move(plans)),
      progress_(plans_.size()),
      parameter_slots_(SlotPool::Kind::Parameters, *plans_.at(0).groups.gather),
      gradient_slots_(SlotPool::Kind::Gradients, *plans_.at(0).groups.reduce) {
  for (const UnitPlan& plan : plans_) {
    units_.push_back(std::make_shared<FsdpUnit>(plan.members, plan.groups,
                                                options_.precision, *this));
    const FsdpUnit& unit = *units_.back();
    scheduled_.push_back({.name = unit.name(),
                          .unsharded_bytes = unit.unsharded_bytes(),
                          .gradient_bytes = unit.gradient_bytes(),
                          .kept = plan.kept});
  }
}

void Executor::attach() {
  for (const std::shared_ptr<FsdpUnit>& unit : units_) {
    unit->attach();
  }
  // Buffers are made before training starts, when running out of memory loses
  // nothing. A program that calls its units in another way needs others later.
  const StepSchedule expected = make_schedule(
      scheduled_, forward_backward_markers(scheduled_), options_.prefetch);
  parameter_slots_.fit(expected.parameter_slots);
  gradient_slots_.fit(expected.gradient_slots);
}

void Executor::set_schedule(StepSchedule schedule) {
  TORCH_CHECK_VALUE(
      schedule.units == scheduled_,
      "[set_step_schedule] the schedule was made for other units than "
      "this module has");
  const std::string fault = validate(schedule);
  TORCH_CHECK_VALUE(fault.empty(), "[set_step_schedule] ", fault);
  settle();
  TORCH_CHECK_VALUE(!pass_open_,
                    "[set_step_schedule] called between forward and the end of "
                    "backward; call it between steps");
  schedule_ = std::move(schedule);
  parameter_slots_.fit(schedule_.parameter_slots);
  gradient_slots_.fit(schedule_.gradient_slots);
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
    // Recomputed by a checkpoint: the gather serves backward too.
    begin_backward_of(unit);
  } else if (at::GradMode::is_enabled()) {
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
  Progress& progress = progress_of(unit);
  const std::shared_ptr<UnitCall> call = std::move(progress.calls.back());
  progress.calls.pop_back();
  --progress.open_forwards;
  if (const auto dtype = options_.precision.output_dtype) {
    cast_floating(outputs, *dtype);
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
  if (progress.open_forwards == 0 && !progress.wanted_by_backward &&
      !inside_backward()) {
    reshard(unit);
  }
}

void Executor::forward_threw(int unit) noexcept {
  Progress& progress = progress_of(unit);
  const bool recorded = progress.calls.back() != nullptr;
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
    following_ = false;
    recorded_.push_back({ActionKind::ForwardEnd, unit, kNoSlot});
  }
}

// ---- Backward --------------------------------------------------------------

void Executor::enter_backward(UnitCall& call) {
  begin_backward_of(call.unit);
  progress_of(call.unit).pending_inputs += call.num_inputs;
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

void Executor::gradient_arrived(FsdpUnit& unit) {
  end_backward_if_complete(index_of(unit));
}

void Executor::end_backward_if_complete(int unit) {
  Progress& progress = progress_of(unit);
  if (progress.in_backward && progress.pending_inputs == 0 &&
      progress.open_forwards == 0 && unit_at(unit).gradients_complete()) {
    pass_marker(ActionKind::BackwardEnd, unit);
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

// ---- The pass --------------------------------------------------------------

void Executor::begin_pass() {
  pass_open_ = true;
  recorded_.clear();
  cursor_ = 0;
  following_ = !schedule_.empty();
  if (following_) {
    run_actions();
  }
}

bool Executor::matches(ActionKind kind, int unit) const {
  return following_ && cursor_ < schedule_.actions.size() &&
         schedule_.actions[cursor_].kind == kind &&
         schedule_.actions[cursor_].unit == unit;
}

void Executor::pass_marker(ActionKind kind, int unit) {
  if (!pass_open_) {
    begin_pass();
  }
  recorded_.push_back({kind, unit, kNoSlot});
  Progress& progress = progress_of(unit);
  if (kind == ActionKind::BackwardEnd) {
    progress.in_backward = false;
    progress.pending_inputs = 0;
    progress.wanted_by_backward = false;
  }
  if (matches(kind, unit)) {
    do_action(schedule_.actions[cursor_++]);
    run_actions();
    return;
  }
  following_ = false;
  on_demand(kind, unit);
}

void Executor::run_actions() {
  const std::vector<Action>& actions = schedule_.actions;
  while (cursor_ < actions.size() && !is_marker(actions[cursor_].kind)) {
    do_action(actions[cursor_++]);
  }
}

void Executor::end_pass() {
  // Units whose backward never completed: some of their parameters had no part
  // in the loss. In the order in which they began.
  const std::vector<Action> passed = recorded_;
  for (const Action& marker : passed) {
    if (marker.kind == ActionKind::Backward &&
        progress_of(marker.unit).in_backward) {
      pass_marker(ActionKind::BackwardEnd, marker.unit);
    }
  }
  const bool followed = following_ && cursor_ == schedule_.actions.size();
  finish_reductions();
  reshard_all();
  pass_open_ = false;
  end_queued_ = false;
  if (!followed) {
    replan();
  }
}

void Executor::replan() {
  // A backward whose forward was in an earlier pass, or ran without a graph, is
  // nothing that the next pass would repeat: what is known stays.
  std::vector<bool> forward(units_.size(), false);
  for (const Action& marker : recorded_) {
    const auto unit = static_cast<std::size_t>(marker.unit);
    if (marker.kind == ActionKind::Backward && !forward[unit]) {
      return;
    }
    forward[unit] = forward[unit] || marker.kind == ActionKind::Forward;
  }
  schedule_ = make_schedule(scheduled_, recorded_, options_.prefetch);
  parameter_slots_.fit(schedule_.parameter_slots);
  gradient_slots_.fit(schedule_.gradient_slots);
}

void Executor::abandon_pass() noexcept {
  // Every rank that is still alive gets here by an error of its own; what is in
  // flight is dropped, and the next pass runs on demand.
  try {
    for (std::size_t i = 0; i < units_.size(); ++i) {
      if (CommBuffer* slot = units_[i]->drop_gradients()) {
        gradient_slots_.put_back(*slot);
      }
      progress_[i] = Progress();
    }
    reshard_all();
  } catch (const std::exception& error) {
    TORCH_WARN("[fully_shard] while dropping a step that failed: ",
               error.what());
  }
  schedule_ = StepSchedule();
  pass_open_ = false;
  end_queued_ = false;
}

void Executor::settle() {
  const bool busy =
      inside_backward() ||
      std::any_of(progress_.begin(), progress_.end(),
                  [](const Progress& p) { return p.open_forwards > 0; });
  if (busy) {
    return;
  }
  if (pass_open_ && end_queued_) {
    abandon_pass();
    return;
  }
  // A backward that still comes is a pass of its own, on demand.
  reshard_all();
  pass_open_ = false;
}

}  // namespace accordion
