// SPDX-License-Identifier: BSD-3-Clause
// The part of Executor that begins, follows and ends passes.
#include <algorithm>
#include <exception>

#include <c10/util/Exception.h>

#include "accordion/fsdp/executor.h"

namespace accordion {

namespace {

/// Whether the pass reduces, keeps whole or puts off, for one unit.
bool reduces(const UnitSettings& unit, const PassSettings& pass) {
  return unit.gradient_sync && (pass.is_last_backward ||
                                pass.accumulation != Accumulation::Unsharded);
}

bool all_reduces(const UnitSettings& unit, const PassSettings& pass) {
  return unit.all_reduce &&
         (pass.is_last_backward ||
          pass.accumulation != Accumulation::DeferredAllReduce);
}

}  // namespace

ScheduledUnit Executor::describe(std::size_t unit_index) const {
  const FsdpUnit& unit = *units_[unit_index];
  const UnitSettings& settings = settings_[unit_index];
  const bool gathers = unit.unsharded_bytes() > 0;
  const bool held = unit.gradient_state() == GradientState::Whole;
  const bool reduce = reduces(settings, pass_settings_);
  // What ends a step hands over gradients of pieces: an optimizer is next, and
  // the forward after it has to see what that wrote.
  const bool ends_step = pass_settings_.is_last_backward && reduce;
  const bool stays =
      (!settings.reshard_after_backward && !ends_step) ||
      (pass_settings_.keep_parameters && !pass_settings_.is_last_backward);
  return {
      .name = unit.name(),
      .unsharded_bytes = unit.unsharded_bytes(),
      .gradient_bytes = unit.gradient_bytes(
          held || !reduce ? GradientUse::KeptWhole : GradientUse::Reduced),
      .all_reduce_bytes =
          all_reduces(settings, pass_settings_) ? unit.all_reduce_bytes() : 0,
      .gradient_shard_bytes = reduce ? unit.gradient_shard_bytes() : 0,
      .offloads_gradient = reduce && unit.gradient_shard_bytes() > 0 &&
                           !options_.step_in_backward,
      .in_place = unit.gathers_in_place(),
      .kept = !settings.reshard_after_forward ||
              !settings.reshard_after_backward || stays,
      .begins_unsharded =
          gathers && unit.parameter_state() != ParameterState::Sharded,
      .ends_unsharded = gathers && stays,
      .begins_with_gradient = held,
      .reduces = reduce,
      .forward_prefetch = settings.forward_prefetch,
      .backward_prefetch = settings.backward_prefetch,
  };
}

/// In the memory of the last description: an allocation of that size has the
/// allocator go through all that is free.
void Executor::describe_pass() {
  pass_.resize(units_.size());
  for (std::size_t i = 0; i < units_.size(); ++i) {
    pass_[i] = describe(i);
  }
}

void Executor::follow(const StepSchedule& schedule) {
  if (schedule_ != schedule || parameter_map_.empty()) {
    schedule_ = schedule;
    parameter_map_ = pools_->parameters.fit(schedule_.parameter_slots);
    gradient_map_ = pools_->gradients.fit(schedule_.gradient_slots);
    gradient_shard_map_ =
        pools_->gradient_shards.fit(schedule_.gradient_shard_slots);
  }
}

/// What is reduced is stepped with, and gone: it has to be the whole gradient.
void Executor::check_steps() const {
  for (std::size_t i = 0; i < pass_.size(); ++i) {
    const ScheduledUnit& unit = pass_[i];
    if (unit.gradient_shard_bytes == 0 || unit.offloads_gradient) {
      continue;
    }
    TORCH_CHECK_VALUE(
        pass_settings_.is_last_backward,
        "[fully_shard] with step_in_backward, a backward that is not the last "
        "of its step would step ",
        display_name(unit),
        ". Set FsdpOptions::accumulation to Accumulation::Unsharded, which "
        "adds gradients up whole until the last.");
    TORCH_CHECK_VALUE(
        unit.all_reduce_bytes == units_[i]->all_reduce_bytes(),
        "[fully_shard] with step_in_backward, ", display_name(unit),
        " would be stepped with a gradient that is not all-reduced over the "
        "replicas. Leave set_requires_all_reduce on.");
  }
}

/// `first`: the marker that begins it; none where this rank joins from the
/// beginning, and does what the last program did.
void Executor::begin_pass(const std::optional<Action>& first) {
  bool changed = false;
  for (const auto& unit : units_) {
    changed |= unit->update_trainable();
  }
  if (changed) {
    ++trainable_version_;
    schedules_.clear();
  }
  describe_pass();
  check_steps();
  meet_if_whole();
  open_pages();
  // Optimizers, checkpoints and users write to shards between passes only.
  for (const auto& unit : units_) {
    unit->age_copies();
  }
  units_.front()->groups().gather->follow_caller();
  pass_open_ = true;
  recorded_.clear();
  cursor_ = 0;
  for (Progress& progress : progress_) {
    progress.stepped = false;
  }
  left_at_.reset();
  unended_.clear();
  turns_.reset();
  const std::optional<Action> begin = first ? first : first_marker(schedule_);
  const StepSchedule* known = begin ? schedules_.find(pass_, *begin) : nullptr;
  following_ = known != nullptr;
  if (following_) {
    follow(*known);
    read_ahead();
    run_actions();
  } else {
    turns_ = std::make_unique<RankTurns>(
        *world_, units_.front()->groups().label("turn"), pass_);
  }
}

void Executor::open_pages() {
  if (pages_ && !pages_use_) {
    pages_use_.emplace(*pages_);
  }
}

void Executor::close_pages() {
  if (pages_use_) {
    const auto drop = [this](void*) { pages_use_.reset(); };
    const std::unique_ptr<void, decltype(drop)> dropped(this, drop);
    pages_use_->close();
  }
}

/// Half of the buffers: the others are for what is used and written.
int Executor::most_read_ahead() const {
  return pages_ ? (pages_->blocks().num_buffers() + 1) / 2 : 0;
}

/// Begins to read the shards that the schedule gathers next.
void Executor::read_ahead() {
  if (!pages_ || !following_) {
    return;
  }
  const std::vector<Action>& actions = schedule_.actions;
  for (std::size_t i = cursor_; i < actions.size(); ++i) {
    if (actions[i].kind == ActionKind::Unshard &&
        !unit_at(actions[i].unit).read_ahead(most_read_ahead())) {
      return;
    }
  }
}

bool Executor::matches(ActionKind kind, int unit) const {
  return following_ && cursor_ < schedule_.actions.size() &&
         schedule_.actions[cursor_].kind == kind &&
         schedule_.actions[cursor_].unit == unit;
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
  const std::size_t num_passed = recorded_.size();
  for (std::size_t i = 0; i < num_passed; ++i) {
    const Action marker = recorded_[i];
    if (marker.kind == ActionKind::Backward &&
        progress_of(marker.unit).in_backward) {
      pass_marker(ActionKind::BackwardEnd, marker.unit);
    }
  }
  if (turns_) {
    take_turns(std::nullopt);
  }
  while (following_ && cursor_ < schedule_.actions.size()) {
    join(schedule_.actions[cursor_++]);
  }
  const bool followed = following_;
  reduce_leftovers();
  reshard_after_pass();
  close_pages();
  pass_open_ = false;
  end_queued_ = false;
  if (!followed && options_.static_graph) {
    replan();
  }
  await_readers();
  meet_if_whole();
}

/// Buffers are found when a pass begins that follows the schedule. Now some may
/// hold whole gradients or parameters for the pass behind, and others would be
/// allocated beside them, for good.
void Executor::replan() {
  schedule_ = schedules_.make(pass_, recorded_);
  parameter_map_.clear();
}

void Executor::abandon_pass() noexcept {
  // Every rank that is still alive gets here by an error of its own; what is in
  // flight is dropped, and the next pass runs on demand.
  try {
    for (std::size_t i = 0; i < units_.size(); ++i) {
      const FsdpUnit::DroppedSlots slots = units_[i]->drop_gradients();
      if (slots.gradients != nullptr) {
        pools_->gradients.put_back(*slots.gradients);
      }
      if (slots.shards != nullptr) {
        pools_->gradient_shards.put_back(*slots.shards);
      }
      progress_[i] = Progress();
    }
    reshard_all();
    close_pages();
  } catch (const std::exception& error) {
    TORCH_WARN("[fully_shard] while dropping a step that failed: ",
               error.what());
  }
  may_have_readers_ = false;  // peers may wait for this rank
  schedules_.clear();
  schedule_ = StepSchedule();
  pass_open_ = false;
  end_queued_ = false;
}

void Executor::settle() {
  if (is_busy()) {
    return;
  }
  if (pass_open_ && end_queued_) {
    abandon_pass();
    return;
  }
  // A backward that still comes is a pass of its own, on demand.
  reshard_all();
  pass_open_ = false;
  close_pages();
  await_readers();
}

void Executor::reshard_now(int unit) {
  const Progress& progress = progress_of(unit);
  TORCH_CHECK_VALUE(progress.open_forwards == 0 && !progress.in_backward,
                    "[reshard] unit '", unit_at(unit).name(), "' is in its ",
                    progress.in_backward ? "backward" : "forward",
                    ", which needs its parameters. Call it between them.");
  reshard(unit);
  if (!is_busy()) {
    await_readers();
  }
}

void Executor::set_schedule(StepSchedule schedule) {
  settle();
  TORCH_CHECK_VALUE(options_.static_graph,
                    "[set_step_schedule] the module was sharded with "
                    "static_graph = false: its passes follow no schedule. "
                    "Leave the option on.");
  TORCH_CHECK_VALUE(!pass_open_,
                    "[set_step_schedule] called between forward and the end of "
                    "backward; call it between steps");
  describe_pass();
  const auto same_unit = [](const ScheduledUnit& a, const ScheduledUnit& b) {
    return a.name == b.name && a.unsharded_bytes == b.unsharded_bytes &&
           a.in_place == b.in_place;
  };
  TORCH_CHECK_VALUE(
      std::equal(pass_.begin(), pass_.end(), schedule.units.begin(),
                 schedule.units.end(), same_unit),
      "[set_step_schedule] the schedule was made for other units "
      "than this module has");
  TORCH_CHECK_VALUE(!markers_of(schedule).empty(),
                    "[set_step_schedule] the schedule contains no forward or "
                    "backward");
  const std::string fault = validate(schedule);
  TORCH_CHECK_VALUE(fault.empty(), "[set_step_schedule] ", fault);
  follow(schedules_.put(std::move(schedule)));
}

}  // namespace accordion
