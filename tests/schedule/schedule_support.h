// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "accordion/schedule/step_schedule.h"

namespace accordion::testing {

/// A kept root of 100 bytes and `blocks` units "1", "2", … of 10 bytes.
inline std::vector<ScheduledUnit> decoder(int blocks) {
  std::vector<ScheduledUnit> units{{.name = "",
                                    .unsharded_bytes = 100,
                                    .gradient_bytes = 100,
                                    .kept = true}};
  for (int i = 1; i <= blocks; ++i) {
    units.push_back({.name = std::to_string(i),
                     .unsharded_bytes = 10,
                     .gradient_bytes = 10});
  }
  return units;
}

/// Short form of an action: U unshard, X reshard, F and f forward and its end,
/// B and b backward, R reduce, r its end, A all-reduce,
/// a its end, S step; then the unit.
inline std::string code(ActionKind kind) {
  switch (kind) {
    case ActionKind::Unshard:
      return "U";
    case ActionKind::Reshard:
      return "X";
    case ActionKind::Forward:
      return "F";
    case ActionKind::ForwardEnd:
      return "f";
    case ActionKind::Backward:
      return "B";
    case ActionKind::BackwardEnd:
      return "b";
    case ActionKind::Reduce:
      return "R";
    case ActionKind::FinishReduce:
      return "r";
    case ActionKind::AllReduce:
      return "A";
    case ActionKind::FinishAllReduce:
      return "a";
    case ActionKind::Step:
      return "S";
    case ActionKind::Offload:
      return "O";
  }
  return "?";
}

/// The actions of a schedule in short form, without their slots.
inline std::string codes(const StepSchedule& schedule) {
  std::string text;
  for (const Action& action : schedule.actions) {
    text += text.empty() ? "" : " ";
    text += code(action.kind) + std::to_string(action.unit);
  }
  return text;
}

/// Markers from their short form: "F0 F1 f1 f0 …".
inline std::vector<Action> markers(const std::string& text) {
  std::vector<Action> actions;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    for (const ActionKind kind :
         {ActionKind::Forward, ActionKind::ForwardEnd, ActionKind::Backward,
          ActionKind::BackwardEnd, ActionKind::Reduce}) {
      if (code(kind) == word.substr(0, 1)) {
        actions.push_back({kind, std::stoi(word.substr(1))});
      }
    }
  }
  return actions;
}

inline StepSchedule decoder_schedule(int blocks, int prefetch) {
  const std::vector<ScheduledUnit> units = decoder(blocks);
  return make_schedule(units, forward_backward_markers(units),
                       {.depth = prefetch});
}

}  // namespace accordion::testing
