// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string>

#include "accordion/fsdp/step_trace.h"
#include "accordion/schedule/step_schedule.h"

namespace accordion {

/// A step in the trace event format, which chrome://tracing and
/// ui.perfetto.dev show: forward and backward of units, what the executor and
/// the training loop do, and the collectives in flight, from their start to the
/// end of their await, each on a line of its own.
///
/// Times count from the beginning of the step, which is `begin_ns` of
/// "otherData" on the steady clock that the ranks of a host share. What starts
/// a collective has the bytes of its full tensor as an argument. `rank` is the
/// process to show.
[[nodiscard]] std::string to_trace_json(const StepTrace& trace,
                                        std::span<const ScheduledUnit> units,
                                        int rank);

}  // namespace accordion
