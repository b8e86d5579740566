// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "accordion/schedule/step_schedule.h"

namespace accordion::plan {

struct PlanRequest;

/// What runs one thing after another.
enum class Stream : std::uint8_t { Compute, Gather, Reduce };

/// Something that a stream does, in seconds from the begin of its pass.
struct StreamEvent {
  Stream stream;
  ActionKind kind;  ///< Forward, Backward, Unshard, Reduce, AllReduce
  int unit = 0;     ///< 0: the root; else the layer below it
  double begin_s = 0.0;
  double end_s = 0.0;
};

/// A step of one rank, in seconds.
///
/// The parts add up to step_s: what communication costs is what is left of it
/// when computation has run beside it, found by following the schedule action
/// by action, and not by a factor.
struct TimePlan {
  double step_s = 0.0;
  double forward_s = 0.0;     ///< computation, all microbatches
  double backward_s = 0.0;    ///< computation, what is computed again included
  double recompute_s = 0.0;   ///< of backward_s
  double contention_s = 0.0;  ///< of both, lost to collectives beside them
  double optimizer_s = 0.0;
  double exposed_gather_s = 0.0;   ///< waiting for parameters
  double exposed_reduce_s = 0.0;   ///< waiting for gradients, at the step's end
  double tensor_s = 0.0;           ///< collectives of tensor ranks not hidden
  double context_s = 0.0;          ///< of context ranks
  double pipeline_bubble_s = 0.0;  ///< waiting for other stages
  double offload_s = 0.0;          ///< waiting for transfers to the host
  double straggler_s = 0.0;        ///< waiting for the slowest rank

  /// What the collectives of a step take, hidden or not.
  double gather_s = 0.0;
  double reduce_s = 0.0;
  double num_collectives = 0.0;   ///< of data-parallel ranks, a step
  double collective_bytes = 0.0;  ///< that this rank sends for them, a step

  /// One pass as the streams see it: that of the last microbatch.
  std::vector<StreamEvent> events;

  [[nodiscard]] double exposed_s() const {
    return exposed_gather_s + exposed_reduce_s + tensor_s + context_s;
  }
};

TimePlan plan_time(const PlanRequest& request);

}  // namespace accordion::plan
