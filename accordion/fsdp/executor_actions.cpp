// SPDX-License-Identifier: BSD-3-Clause
// The half of Executor that does what a schedule says, or what is needed where
// there is none.
#include "accordion/fsdp/executor.h"

#include <algorithm>

#include <c10/util/Exception.h>

namespace accordion {

namespace {

constexpr int kNoSlot = SlotPool::kAnySlot;

}  // namespace

void Executor::do_action(const Action& action) {
  switch (action.kind) {
    case ActionKind::Unshard:
      unshard(action.unit, action.slot);
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
    case ActionKind::Reduce:
      unit_at(action.unit).start_reduce();
      return;
    case ActionKind::FinishReduce:
      finish_reduce(action.unit);
      return;
    case ActionKind::ForwardEnd:
    case ActionKind::BackwardEnd:
      return;
  }
}

void Executor::on_demand(ActionKind kind, int unit) {
  const Progress& progress = progress_of(unit);
  const bool kept = plans_[static_cast<std::size_t>(unit)].kept;
  switch (kind) {
    case ActionKind::Forward:
      ensure_unsharded(unit);
      return;
    case ActionKind::ForwardEnd:
      if (progress.open_forwards == 0 &&
          !(kept && progress.wanted_by_backward)) {
        reshard(unit);
      }
      return;
    case ActionKind::Backward:
      ensure_unsharded(unit);
      begin_gradients(unit, kNoSlot);
      return;
    case ActionKind::BackwardEnd:
      finish_reductions();
      if (unit_at(unit).gradient_state() == GradientState::Collecting) {
        unit_at(unit).start_reduce();
        finish_reduce(unit);
      }
      reshard(unit);
      return;
    default:
      TORCH_INTERNAL_ASSERT(false, "not a marker");
  }
}

void Executor::unshard(int unit, int slot) {
  FsdpUnit& u = unit_at(unit);
  if (u.parameter_state() != ParameterState::Sharded) {
    return;
  }
  u.start_unshard(parameter_slots_.take(slot, u.unsharded_bytes()));
}

void Executor::ensure_unsharded(int unit) {
  unshard(unit, kNoSlot);
  if (unit_at(unit).parameter_state() == ParameterState::Unsharding) {
    unit_at(unit).finish_unshard();
  }
}

void Executor::reshard(int unit) {
  FsdpUnit& u = unit_at(unit);
  if (u.unsharded_bytes() > 0 &&
      u.parameter_state() != ParameterState::Sharded) {
    parameter_slots_.put_back(u.reshard());
  }
}

void Executor::begin_gradients(int unit, int slot) {
  FsdpUnit& u = unit_at(unit);
  if (u.gradient_bytes() == 0) {
    return;
  }
  if (u.gradient_state() == GradientState::Reducing) {
    finish_reduce(unit);
  }
  u.begin_gradients(gradient_slots_.take(slot, u.gradient_bytes()));
}

void Executor::finish_reduce(int unit) {
  gradient_slots_.put_back(unit_at(unit).finish_reduce());
}

void Executor::finish_reductions() {
  for (std::size_t i = 0; i < units_.size(); ++i) {
    if (units_[i]->gradient_state() == GradientState::Reducing) {
      finish_reduce(static_cast<int>(i));
    }
  }
}

void Executor::reshard_all() {
  for (std::size_t i = 0; i < units_.size(); ++i) {
    reshard(static_cast<int>(i));
    progress_[i].wanted_by_backward = false;
  }
}

int Executor::index_of(const FsdpUnit& unit) const {
  const auto found = std::find_if(
      units_.begin(), units_.end(),
      [&unit](const auto& candidate) { return candidate.get() == &unit; });
  return static_cast<int>(found - units_.begin());
}

}  // namespace accordion
