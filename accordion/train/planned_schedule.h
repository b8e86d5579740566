// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "accordion/fsdp/options.h"
#include "accordion/models/llama_config.h"
#include "accordion/schedule/step_schedule.h"

namespace accordion {

/// The schedule that the steps of a model will follow, without a step or a
/// second rank: what step_schedule returns after the first step.
///
/// Throws std::invalid_argument for world_size < 1
StepSchedule planned_schedule(const LlamaConfig& model,
                              const FsdpOptions& options, int world_size);

/// Totals of a schedule in a line: collectives and bytes of a step, and the
/// unsharded bytes that a rank holds at most.
std::string schedule_totals(const StepSchedule& schedule);

}  // namespace accordion
