// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "accordion/plan/search/change.h"

namespace accordion::plan {

/// A change worth trying.
struct Advice {
  ChangedPlan changed;
  /// Of tokens a second and GPU, against the plan as asked: 0.2 is 20 % more.
  double gain = 0.0;
};

/// What limits the plan: its memory, or the part of a step that communication,
/// recomputation or waiting takes most of, or computation itself. One or two
/// sentences.
std::string binding_constraint(const PlanRequest& request, const Plan& plan);

/// The changes, each of another kind, that gain most: for a plan that fits,
/// those that make it faster and fit; else those that make it fit, two at a
/// time or with more GPUs where one does not, the fastest first.
///
/// Every change is planned with larger microbatches too, as far as those fit.
std::vector<Advice> worthwhile_changes(const PlanQuestion& question,
                                       const PlanRequest& request,
                                       const Plan& plan, std::size_t count = 3);

}  // namespace accordion::plan
