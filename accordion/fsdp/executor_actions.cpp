// SPDX-License-Identifier: BSD-3-Clause
// The part of Executor that does what a schedule says, or what is needed where
// there is none.
#include <algorithm>

#include <c10/util/Exception.h>

#include "accordion/fsdp/executor.h"

namespace accordion {

namespace {

constexpr int kNoSlot = SlotPool::kAnySlot;

}  // namespace

void Executor::do_action(const Action& action) {
  switch (action.kind) {
    case ActionKind::Unshard:
      unshard(action.unit, action.slot);
      read_ahead();
      return;
    case ActionKind::Reshard:
      reshard(action.unit);
      return;
    case ActionKind::Forward:
      ensure_unsharded(action.unit);
      return;
    case ActionKind::Backward:
      ensure_unsharded(action.unit);
      begin_gradients(action.unit, action.slot);
      return;
    case ActionKind::BackwardEnd:
      end_gradients(action.unit);
      return;
    case ActionKind::Reduce:
      start_reduce(action.unit, action.slot);
      return;
    case ActionKind::FinishReduce:
      finish_reduce(action.unit);
      return;
    case ActionKind::AllReduce:
      start_all_reduce(action.unit);
      return;
    case ActionKind::FinishAllReduce:
      finish_all_reduce(action.unit);
      return;
    case ActionKind::Step:
      step(action.unit);
      return;
    case ActionKind::Offload:
      offload_gradients(action.unit);
      return;
    case ActionKind::ForwardEnd:
      return;
  }
}

/// What a marker needs. `still_open`: at ForwardEnd, whether the unit is still
/// in another call.
void Executor::on_demand(ActionKind kind, int unit, bool still_open) {
  const Progress& progress = progress_of(unit);
  const ScheduledUnit& is = described(unit);
  switch (kind) {
    case ActionKind::Forward:
      ensure_unsharded(unit);
      return;
    case ActionKind::ForwardEnd:
      if (!still_open && !is.ends_unsharded &&
          !(is.kept && progress.wanted_by_backward)) {
        reshard(unit);
      }
      return;
    case ActionKind::Backward:
      ensure_unsharded(unit);
      begin_gradients(unit, kNoSlot);
      return;
    case ActionKind::BackwardEnd:
      finish_reductions();
      end_gradients(unit);
      if (is.reduces &&
          unit_at(unit).gradient_state() == GradientState::Whole) {
        start_reduce(unit, kNoSlot);
      }
      if (!is.ends_unsharded) {
        reshard(unit);
      }
      finish_reduction_of(unit);
      return;
    default:
      TORCH_INTERNAL_ASSERT(false, "not a marker");
  }
}

// ---- Parameters ------------------------------------------------------------

void Executor::unshard(int unit, int slot) {
  FsdpUnit& u = unit_at(unit);
  TORCH_CHECK_VALUE(!u.summoned(), "[SummonFullParameters] unit '", u.name(),
                    "' was called, in forward or backward, while a guard shows "
                    "its whole parameters. End the guard before the pass.");
  if (u.parameter_state() == ParameterState::Sharded) {
    const TraceScope span = traced(SpanKind::StartGather, unit);
    if (!pass_open_) {
      u.groups().gather->follow_caller();
      u.forget_copies();
    }
    if (pages_ && !pages_->in_use()) {
      // Outside of passes the shards may have been written to.
      pages_->forget();
    }
    u.start_unshard(u.gathers_in_place()
                        ? nullptr
                        : &pools_->parameters.take(parameter_map_, slot,
                                                   u.unsharded_bytes()));
  }
}

void Executor::ensure_unsharded(int unit) {
  unshard(unit, kNoSlot);
  if (unit_at(unit).parameter_state() == ParameterState::Unsharding) {
    const TraceScope span = traced(SpanKind::AwaitGather, unit);
    unit_at(unit).finish_unshard();
  }
}

void Executor::reshard(int unit) {
  FsdpUnit& u = unit_at(unit);
  // Between forward and backward the neighbours keep a copy, if they are to.
  const bool comes_back = progress_of(unit).wanted_by_backward;
  if (!comes_back) {
    u.drop_secondary();
  }
  if (u.unsharded_bytes() == 0 ||
      u.parameter_state() == ParameterState::Sharded) {
    return;
  }
  const TraceScope span = traced(SpanKind::Reshard, unit);
  const bool to_secondary = comes_back && u.groups().secondary &&
                            u.parameter_state() == ParameterState::Unsharded;
  const CommBuffer* const taken =
      to_secondary ? &u.reshard_to_secondary() : u.reshard();
  if (taken != nullptr) {
    pools_->parameters.put_back(*taken);
  }
  may_have_readers_ |= u.gathers_in_place();
}

/// What comes next may write to shards, and read gradients.
void Executor::await_readers() {
  if (options_.offload) {
    units_.front()->groups().gather->block_host();
  }
  if (!std::exchange(may_have_readers_, false)) {
    return;
  }
  for (const auto& unit : units_) {
    if (unit->parameter_state() == ParameterState::Sharded) {
      unit->await_readers();
    }
  }
}

/// Between two passes: what ranks write to parameters that stay whole has no
/// gather to be ordered by.
void Executor::meet_if_whole() {
  const bool whole =
      std::any_of(units_.begin(), units_.end(), [](const auto& unit) {
        return unit->gathers_in_place() &&
               unit->parameter_state() != ParameterState::Sharded;
      });
  if (whole) {
    const CommGroups& groups = units_.front()->groups();
    groups.gather->barrier(groups.label("parameters that stay whole"));
  }
}

void Executor::reshard_all() {
  for (std::size_t i = 0; i < units_.size(); ++i) {
    progress_[i].wanted_by_backward = false;
    reshard(static_cast<int>(i));
  }
}

void Executor::reshard_after_pass() {
  for (std::size_t i = 0; i < units_.size(); ++i) {
    progress_[i].wanted_by_backward = false;
    if (!pass_[i].ends_unsharded) {
      reshard(static_cast<int>(i));
    }
  }
}

// ---- Gradients -------------------------------------------------------------

void Executor::begin_gradients(int unit, int slot) {
  FsdpUnit& u = unit_at(unit);
  const ScheduledUnit& is = described(unit);
  if (is.gradient_bytes == 0) {
    return;
  }
  finish_reduction_of(unit);
  TORCH_CHECK_VALUE(!progress_of(unit).stepped, "[fully_shard] backward of ",
                    display_name(is),
                    " begins again after the optimizer stepped it in this "
                    "backward. Where a unit's calls are not all part of one "
                    "backward, shard without step_in_backward.");
  const TraceScope span = traced(SpanKind::BeginGradients, unit);
  switch (u.gradient_state()) {
    case GradientState::None: {
      const GradientUse use =
          is.reduces ? GradientUse::Reduced : GradientUse::KeptWhole;
      u.begin_gradients(
          pools_->gradients.take(gradient_map_, slot, u.gradient_bytes(use)),
          use);
      if (is.reduces) {
        u.read_gradients_ahead(most_read_ahead());
      }
      return;
    }
    case GradientState::Whole:
      u.resume_gradients();
      return;
    default:
      return;  // joined, and called after all
  }
}

void Executor::end_gradients(int unit) {
  if (unit_at(unit).gradient_state() == GradientState::Collecting) {
    const TraceScope span = traced(SpanKind::KeepGradients, unit);
    unit_at(unit).keep_gradients();
  }
}

void Executor::start_reduce(int unit, int slot) {
  const TraceScope span = traced(SpanKind::StartReduce, unit);
  // The mean over all ranks: what is left of it to an all-reduce over replicas
  // is the mean over those.
  const CommGroups& groups = unit_at(unit).groups();
  const double divisor =
      pass_settings_.divide_factor.value_or(groups.num_ranks());
  CommBuffer* shards = nullptr;
  if (const std::int64_t bytes = unit_at(unit).gradient_shard_bytes()) {
    shards = &pools_->gradient_shards.take(gradient_shard_map_, slot, bytes);
  }
  unit_at(unit).start_reduce(groups.num_replicas() / divisor, shards);
}

void Executor::finish_reduce(int unit) {
  const TraceScope span = traced(SpanKind::AwaitReduce, unit);
  pools_->gradients.put_back(unit_at(unit).finish_reduce());
}

void Executor::start_all_reduce(int unit) {
  const TraceScope span = traced(SpanKind::StartAllReduce, unit);
  FsdpUnit& u = unit_at(unit);
  CommBuffer* shards = nullptr;
  if (u.gradient_shard_bytes() > 0 && !u.holds_gradient_shards()) {
    // Of a pass before.
    shards = &pools_->gradient_shards.take(gradient_shard_map_, kNoSlot,
                                           u.gradient_shard_bytes());
  }
  u.start_all_reduce(shards);
}

void Executor::finish_all_reduce(int unit) {
  const TraceScope span = traced(SpanKind::AwaitAllReduce, unit);
  unit_at(unit).finish_all_reduce();
}

/// The sharded gradient, where it does not stay.
void Executor::hand_over(int unit) {
  if (options_.step_in_backward) {
    step(unit);
  } else {
    offload_gradients(unit);
  }
}

void Executor::offload_gradients(int unit) {
  const TraceScope span = traced(SpanKind::Offload, unit);
  pools_->gradient_shards.put_back(unit_at(unit).offload_gradients());
}

void Executor::step(int unit) {
  const TraceScope span = traced(SpanKind::Optimizer, unit);
  TORCH_CHECK_VALUE(unit_step_,
                    "[fully_shard] the module was sharded with "
                    "step_in_backward, and no optimizer steps it. Make an "
                    "accordion::StepInBackward, which lives as long as the "
                    "training, before the first backward.");
  unit_step_(unit);
  progress_of(unit).stepped = true;
  pools_->gradient_shards.put_back(unit_at(unit).free_gradient_shards());
}

void Executor::finish_reduction_of(int unit) {
  FsdpUnit& u = unit_at(unit);
  if (u.gradient_state() == GradientState::Reducing) {
    finish_reduce(unit);
    if (described(unit).all_reduce_bytes > 0) {
      start_all_reduce(unit);
    }
  }
  if (u.gradient_state() == GradientState::AllReducing) {
    finish_all_reduce(unit);
  }
  if (u.holds_gradient_shards()) {
    hand_over(unit);
  }
}

void Executor::finish_reductions() {
  for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit) {
    finish_reduction_of(unit);
  }
}

/// What earlier passes left and this one, the last, did not come by.
void Executor::reduce_leftovers() {
  for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit) {
    FsdpUnit& u = unit_at(unit);
    if (u.gradient_state() == GradientState::Whole && described(unit).reduces) {
      start_reduce(unit, kNoSlot);
    }
    finish_reduction_of(unit);
    if (u.has_partial_gradients() && described(unit).all_reduce_bytes > 0) {
      start_all_reduce(unit);
      finish_reduction_of(unit);
    }
  }
}

}  // namespace accordion
