// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "accordion/comm/mesh_grid.h"
#include "accordion/fsdp/options.h"
#include "accordion/models/llama_config.h"
#include "accordion/schedule/step_schedule.h"

namespace accordion {

/// Which of the passes of a step, one a microbatch ([Note: pass] in
/// schedule/step_schedule.h).
enum class Microbatch {
  Only,    ///< the step has one
  First,   ///< of two or more
  Middle,  ///< neither first nor last
  Last,
};

/// Ranks along the axis of that name; 1 where there is none.
int axis_size(std::span<const MeshAxis> axes, std::string_view name);

/// The schedule that a pass of a model will follow, without a step or a second
/// rank: what step_schedule returns after such a pass.
///
/// `axes` are those of the mesh: "shard", or "replicate" and "shard".
/// `shares_memory`: whether ranks of its shard axis do, all of them
/// (Communicator::shares_common_memory), and so may gather in place.
StepSchedule planned_schedule(const LlamaConfig& model,
                              const FsdpOptions& options,
                              std::span<const MeshAxis> axes,
                              bool shares_memory,
                              Microbatch microbatch = Microbatch::Only);

/// Totals of a schedule in a line: collectives and bytes of a pass, and the
/// unsharded bytes that a rank holds at most.
std::string schedule_totals(const StepSchedule& schedule);

}  // namespace accordion
