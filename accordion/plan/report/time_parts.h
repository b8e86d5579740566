// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>
#include <vector>

#include "accordion/plan/time_plan.h"

namespace accordion::plan {

/// A part of a step's time, none of which is in another.
struct TimePart {
  std::string_view name;
  double seconds = 0.0;
  std::string_view what;  ///< what it is spent on, for people
};

/// All parts in a fixed order, those of 0 s included; they add up to step_s.
[[nodiscard]] std::vector<TimePart> time_parts(const TimePlan& time);

}  // namespace accordion::plan
