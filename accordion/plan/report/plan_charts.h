// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

#include "accordion/plan/report/plan_report.h"

namespace accordion::plan {

/// SVG of what a GPU holds over the last microbatch, a layer a kind, with a
/// line at the device's memory.
std::string memory_chart(const PlanReport& report);

/// SVG of the last microbatch's pass on the streams of computation, gathers
/// and reductions. Hovering names each event.
std::string stream_chart(const PlanReport& report);

/// &, <, > and quotes as entities.
std::string escaped(std::string_view text);

}  // namespace accordion::plan
