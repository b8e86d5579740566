// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "accordion/plan/cluster.h"
#include "accordion/plan/memory_plan.h"
#include "accordion/plan/model_shape.h"
#include "accordion/plan/software_stack.h"
#include "accordion/plan/strategy.h"
#include "accordion/plan/time_plan.h"
#include "accordion/plan/training.h"

namespace accordion::plan {

/// A question to the planner: this model, on these devices, in this way.
struct PlanRequest {
  ModelShape model;
  Cluster cluster;
  Strategy strategy;
  Training training;
  SoftwareStack stack;
};

/// Throws std::invalid_argument that names the field, what it is and the
///        nearest value that would do: sizes below 1, heads that do not divide
///        by tensor ranks, layers by stages, a strategy that does not multiply
///        to the cluster, a type the device does not have
void check(const PlanRequest& request);

/// What will happen, before it does.
struct Plan {
  MemoryPlan memory;  ///< of the rank that holds most
  TimePlan time;
  std::int64_t tokens_per_step = 0;  ///< of all ranks
  double tokens_per_s_per_gpu = 0.0;
  /// Model FLOPs (ModelShape::model_flops_per_token) against the peak of the
  /// 16-bit units, whatever type computes: [0, 1].
  double mfu = 0.0;
  double model_flops_per_s_per_gpu = 0.0;
  bool fits = false;  ///< memory.reserved_bytes within the device's memory
};

/// Arithmetic only: about a millisecond, and nothing is allocated or run.
///
/// Throws what check() does
Plan make_plan(const PlanRequest& request);

}  // namespace accordion::plan
