// SPDX-License-Identifier: BSD-3-Clause
// The part of Executor for ranks whose programs differ: taking turns where
// there is no schedule, joining what this rank leaves out where there is one.
#include <algorithm>

#include <c10/util/Exception.h>

#include "accordion/fsdp/executor.h"

namespace accordion {

// ---- Without a schedule ----------------------------------------------------

/// Does what other ranks do until it is this rank's turn to pass its marker,
/// and that too; without a marker, until all ranks are through the pass.
void Executor::take_turns(const std::optional<Action>& mine) {
  Arrival arrival{.marker = mine};
  if (mine && mine->kind == ActionKind::ForwardEnd) {
    arrival.comes_back = progress_of(mine->unit).wanted_by_backward;
  }
  Turn turn;
  do {
    turn = turns_->next(arrival);
    if (!turn.marker || !turn.counts) {
      continue;
    }
    const auto [kind, unit, slot] = *turn.marker;
    recorded_.push_back(*turn.marker);
    if (kind == ActionKind::ForwardEnd) {
      // All keep for backward what any of them needs there.
      progress_of(unit).wanted_by_backward |= turn.comes_back;
    } else if (kind == ActionKind::BackwardEnd) {
      progress_of(unit).wanted_by_backward = false;
    }
    on_demand(kind, unit, turn.still_open);
  } while (!turn.own);
}

// ---- On a schedule ---------------------------------------------------------

void Executor::leave_schedule(const Action& marker) {
  following_ = false;
  if (!left_at_) {
    left_at_ = marker;
  }
}

/// Calls of the unit's forward, or of its backward, that the schedule is in.
int Executor::scheduled_depth(ActionKind begin, ActionKind end,
                              int unit) const {
  int depth = 0;
  for (std::size_t i = 0; i < cursor_; ++i) {
    const Action& action = schedule_.actions[i];
    if (action.unit == unit) {
      depth += action.kind == begin ? 1 : action.kind == end ? -1 : 0;
    }
  }
  return depth;
}

/// Whether the marker needs nothing: this rank enters what the schedule is in
/// anyway, or leaves what it stays in ([Note: turns] on a schedule).
bool Executor::is_inside(ActionKind kind, int unit) const {
  if (is_of_forward(kind)) {
    // Without the call that begins or ends here.
    return progress_of(unit).open_forwards <
           scheduled_depth(ActionKind::Forward, ActionKind::ForwardEnd, unit);
  }
  return scheduled_depth(ActionKind::Backward, ActionKind::BackwardEnd, unit) >
         0;
}

/// Does what the schedule has before its next such marker, if it has one and
/// nothing in between is still to come from this rank's own program.
bool Executor::join_up_to(ActionKind kind, int unit) {
  if (!following_) {
    return false;
  }
  const std::vector<Action>& actions = schedule_.actions;
  std::size_t target = cursor_;
  for (; target < actions.size(); ++target) {
    const Action& action = actions[target];
    if (action.kind == kind && action.unit == unit) {
      break;
    }
    const Progress& progress = progress_of(action.unit);
    const bool ours =
        (action.kind == ActionKind::ForwardEnd && progress.open_forwards > 0) ||
        (action.kind == ActionKind::BackwardEnd && progress.in_backward);
    if (ours) {
      return false;
    }
  }
  if (target == actions.size()) {
    return false;
  }
  while (cursor_ < target) {
    join(actions[cursor_++]);
  }
  return true;
}

void Executor::join(const Action& action) {
  if (is_marker(action.kind)) {
    recorded_.push_back({action.kind, action.unit});
  }
  if (action.kind == ActionKind::ForwardEnd) {
    // Peers keep for backward what they do; so does this rank.
    const auto rest =
        schedule_.actions.begin() + static_cast<std::ptrdiff_t>(cursor_);
    progress_of(action.unit).wanted_by_backward |=
        std::any_of(rest, schedule_.actions.end(), [&](const Action& later) {
          return later.kind == ActionKind::Backward &&
                 later.unit == action.unit;
        });
  } else if (action.kind == ActionKind::BackwardEnd) {
    progress_of(action.unit).wanted_by_backward = false;
  }
  do_action(action);
}

void Executor::join_pass() {
  TORCH_CHECK_VALUE(!is_busy(),
                    "[join_pass] called inside forward or backward; call it "
                    "between them, or between passes");
  if (!pass_open_ || end_queued_) {
    settle();
    begin_pass(std::nullopt);
  }
  TORCH_CHECK_VALUE(
      following_ || turns_,
      "[join_pass] the forward of this pass left the schedule, so "
      "what is left of it is not known. Run its backward on every "
      "rank.");
  end_pass();
}

}  // namespace accordion
