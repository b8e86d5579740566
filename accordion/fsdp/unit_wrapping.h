// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "accordion/fsdp/unit_discovery.h"
#include "accordion/fsdp/wrap_policy.h"

namespace accordion {

struct WrappedUnits {
  std::vector<UnitMembers> units;       ///< those that the policy chose
  std::vector<WrapDecision> decisions;  ///< about each declared one
};

/// Applies a policy to what discover_units found: parameters of a unit that was
/// not chosen move to the unit around it, behind that one's own; parents are
/// numbered anew. The order of units is kept. A dissolved unit has no hooks, so
/// it runs as the plain module that it is.
WrappedUnits wrap_units(std::vector<UnitMembers> declared,
                        const WrapPolicy& policy);

}  // namespace accordion
