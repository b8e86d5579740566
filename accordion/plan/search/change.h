// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "accordion/plan/question/plan_question.h"

namespace accordion::plan {

/// Keys that differ from a question's, and why one would try them.
struct Change {
  std::string kind;  ///< changes of one kind exclude each other
  std::vector<std::string> keys;
  std::string why;
};

/// A change with what it gives.
struct ChangedPlan {
  Change change;
  PlanRequest request;
  Plan plan;
};

/// Single changes that may help a plan fit or go faster; larger microbatches
/// and clusters are not among them.
std::vector<Change> possible_changes(const PlanRequest& request);

/// The plan of a change; none where it does not apply (heads that do not
/// divide, a batch that does not).
std::optional<ChangedPlan> with_change(const PlanQuestion& question,
                                       const Change& change);

}  // namespace accordion::plan
