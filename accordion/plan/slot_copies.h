// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace accordion::plan {

struct PlanRequest;

/// What a rank copies between its shards and slots besides collectives, in
/// seconds.
struct SlotCopies {
  double forward = 0.0;   ///< parameters, cast
  double backward = 0.0;  ///< the same again, and gradients
};

/// Of a unit of `params` in one microbatch: where ranks hold everything and
/// slots are used all the same (SoftwareStack::lone_ranks_use_slots), and
/// where shards are offloaded and pass through buffers. `kept`: the unit's
/// parameters stay whole from forward to backward.
SlotCopies slot_copies(double params, const PlanRequest& request, bool kept);

}  // namespace accordion::plan
