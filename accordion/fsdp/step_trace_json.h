// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string>

#include "accordion/fsdp/step_trace.h"

namespace accordion {

/// A step in the trace event format, which chrome://tracing and
/// ui.perfetto.dev show: forward and backward of units, what the executor and
/// the training loop do, and the collectives in flight, from their start to the
/// end of their await, each on a line of its own.
///
/// `names` are those of the units, by index; `rank` is the process to show.
[[nodiscard]] std::string to_trace_json(const StepTrace& trace,
                                        std::span<const std::string> names,
                                        int rank);

}  // namespace accordion
