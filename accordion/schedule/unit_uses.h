// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "accordion/schedule/step_schedule.h"

namespace accordion::detail {

/// Whether a marker begins a forward or a backward.
inline bool begins(ActionKind kind) {
  return kind == ActionKind::Forward || kind == ActionKind::Backward;
}

/// Calls of a unit that have begun and not ended.
struct OpenCalls {
  int forward = 0;
  int backward = 0;

  [[nodiscard]] int total() const { return forward + backward; }
};

/// Counts a marker in.
void pass(OpenCalls& calls, ActionKind kind);

/// A stretch of the program during which a unit must be unsharded.
struct Use {
  int unit = 0;
  std::size_t begin = 0;  ///< marker before which it is unsharded
  std::size_t end = 0;    ///< marker after which it may be resharded
  bool unshard = true;    ///< false where it still is from the use before
  bool reshard = true;    ///< false where it stays for the next use
};

/// The uses of a program in the order in which they begin.
std::vector<Use> find_uses(const std::vector<ScheduledUnit>& units,
                           std::span<const Action> markers);

/// Applies [Note: last unit].
void join_uses(std::vector<Use>& uses, int num_units, int depth);

}  // namespace accordion::detail
