// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "accordion/models/llama_config.h"
#include "accordion/schedule/memory_by_kind.h"
#include "accordion/train/planned_collectives.h"
#include "accordion/train/train_config.h"

namespace accordion {

/// A pass of a step as it was executed and as it was planned.
struct DryPass {
  Microbatch microbatch = Microbatch::Only;
  std::int64_t times = 1;  ///< in a step
  CollectiveTotals executed = {};
  CollectiveTotals planned = {};
  bool same_schedule = false;  ///< action by action, slots included
};

/// A step of one rank, executed without memory or arithmetic, beside what was
/// planned from shapes alone.
struct DryRun {
  int rank = 0;
  int world_size = 1;
  std::int64_t parameters = 0;
  std::vector<DryPass> passes = {};
  MemoryByKind executed = {};  ///< the highest of each kind in the step
  MemoryByKind planned = {};   ///< estimated_memory
  double seconds = 0.0;        ///< that this took

  /// Of a step, all its passes.
  [[nodiscard]] CollectiveTotals executed_step() const;
  [[nodiscard]] CollectiveTotals planned_step() const;
};

/// Most by which kinds of state memory may differ from the plan.
inline constexpr double kDryRunTolerance = 0.02;

/// Shards the model of a configuration over `num_ranks` ranks and takes steps
/// as rank `rank` of them: the modules, the executor and the optimizer of a
/// run, on a mesh without memory and with tensors on meta (backend "meta"). The
/// first step records its schedule; the last, which follows it, is reported.
/// Slots count whole, as where ranks do not share memory.
///
/// Memory  of objects, not of tensors: any model fits
/// Throws  ConfigError, std::invalid_argument for ranks that the configuration
///         does not divide, or offload, which has no dry form
[[nodiscard]] DryRun dry_run(const TrainConfig& config, int num_ranks,
                             int rank = 0);

/// What differs: collectives or bytes at all, a schedule, state memory of a
/// kind by more than kDryRunTolerance; a sentence each, none where all is well.
[[nodiscard]] std::vector<std::string> differences(const DryRun& run);

/// Executed and planned side by side.
[[nodiscard]] std::string to_table(const DryRun& run);

}  // namespace accordion
