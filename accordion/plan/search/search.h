// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "accordion/plan/question/plan_question.h"

namespace accordion::plan {

/// A plan that was found, and the keys that make it from the question.
struct FoundPlan {
  std::vector<std::string> keys;
  PlanRequest request;
  Plan plan;
};

struct SearchResult {
  std::vector<FoundPlan> fastest;  ///< those that fit, fastest first
  std::int64_t num_examined = 0;
  std::int64_t num_fitting = 0;
  /// Where none fits: what needs least memory.
  std::vector<FoundPlan> smallest;
};

/// Tries all strategies, meshes of shard and replicate ranks, tensor ranks
/// within a host, microbatches and checkpointing; where batch_tokens is stated
/// also how a batch is cut into microbatches (else a step has as many as the
/// question says: more of them are always a little faster). Keys that the user
/// stated stay as they are.
///
/// A few seconds for 16,384 GPUs.
SearchResult search(const PlanQuestion& question, std::size_t keep = 10);

}  // namespace accordion::plan
