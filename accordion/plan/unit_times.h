// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "accordion/schedule/step_schedule.h"

namespace accordion::plan {

struct PlanRequest;

/// What a unit costs in one microbatch, in seconds.
///
/// The root (unit 0) computes in two places each way: before and behind its
/// layers in forward, behind and before them in backward.
struct UnitTimes {
  double forward = 0.0;       ///< layers; the root: embedding
  double forward_end = 0.0;   ///< the root: last norm, head and loss
  double backward = 0.0;      ///< layers; the root: head and loss
  double backward_end = 0.0;  ///< the root: embedding
  double recompute = 0.0;     ///< of `backward`
  double tensor = 0.0;        ///< exposed collectives of tensor ranks, of all
  double context = 0.0;       ///< of context ranks, of all
  double gather = 0.0;        ///< for forward
  double gather_backward = 0.0;
  double reduce = 0.0;
  double all_reduce = 0.0;  ///< over replicas
};

/// The position of a microbatch among those of a step.
enum class PassKind : std::uint8_t { Only, First, Middle, Last };

/// The units of a pass, as the schedule takes them: the root and the layers of
/// one pipeline stage.
///
/// Parameters gathered in 8 bits are those of layers; the root's products are
/// in 16.
///
/// Units  bytes of this rank's collectives, whole, as they are on the wire
std::vector<ScheduledUnit> units_of(const PlanRequest& request, PassKind pass);

/// What each of them costs, in the same order. Layers cost the same.
std::vector<UnitTimes> times_of(const PlanRequest& request);

/// Whether gathered units take no memory: the ranks that one copy is cut over
/// are on one host without devices, share its memory, and compute in the type
/// that is stored.
bool gathers_in_place(const PlanRequest& request);

/// Layers of one stage: all without a pipeline; a fraction where stages differ
/// by one, as the average of them.
double layers_per_stage(const PlanRequest& request);

/// Parameters that this rank would hold if nothing were sharded: its part of a
/// layer, and of the root (half of it, on average, with a pipeline: the ends
/// of the model are on different stages).
double layer_params_of_rank(const PlanRequest& request);
double root_params_of_rank(const PlanRequest& request);
/// Of all its units.
double params_of_rank(const PlanRequest& request);
/// Of those, what its optimizer steps.
double stepped_params(const PlanRequest& request);

}  // namespace accordion::plan
