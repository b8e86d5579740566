// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string>
#include <vector>

#include "accordion/fsdp/memory_timeline.h"
#include "accordion/fsdp/step_trace.h"
#include "accordion/offload/offload_store.h"
#include "accordion/schedule/step_schedule.h"

namespace accordion {

/// What a trace may show beside spans.
struct TraceExtras {
  std::vector<MemoryMoment> memory = {};     ///< a curve per kind, in MiB
  std::vector<TransferSpan> transfers = {};  ///< of what is offloaded
};

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
                                        int rank,
                                        const TraceExtras& extras = {});

}  // namespace accordion
