// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "accordion/fsdp/allocation_meter.h"
#include "accordion/fsdp/step_trace.h"
#include "accordion/schedule/step_schedule.h"

namespace accordion {

/// What comes and goes within a step, at the beginning or end of an action.
///
/// Units  bytes; of slots the part that is in use
struct MemoryMoment {
  std::int64_t ns = 0;  ///< of the steady clock
  SpanKind kind = SpanKind::Other;
  int unit = -1;  ///< index among the units; -1: none
  bool end = false;
  std::int64_t unsharded_parameters = 0;
  std::int64_t whole_gradients = 0;
  std::int64_t activations = 0;
  std::int64_t other = 0;  ///< further tensors, known ones included

  bool operator==(const MemoryMoment&) const = default;
};

/// The memory of a step, action by action: each span of `trace` gives a moment
/// at its beginning and one at its end, in the order of time. `samples` are
/// those that a tracker recorded meanwhile.
[[nodiscard]] std::vector<MemoryMoment> memory_timeline(
    const StepTrace& trace, std::span<const AllocationMeter::Sample> samples,
    std::span<const ScheduledUnit> units);

}  // namespace accordion
