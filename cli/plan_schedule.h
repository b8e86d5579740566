// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "accordion/train/planned_schedule.h"

namespace accordion::cli {

/// What `accordion plan --schedule` is asked.
struct ScheduleFlags {
  std::string model;  ///< a config.json, or a configuration of a run
  int num_ranks = 2;
  Microbatch microbatch = Microbatch::Only;
};

/// Prints the schedule of a step, and what a rank holds in it.
void print_schedule(const ScheduleFlags& flags,
                    const std::vector<std::string>& overrides);

/// Executes a step of that model as one of `num_ranks`, without memory, and
/// prints what it did beside the plan. Returns 0 where they agree, else 1.
int print_dry_run(const std::string& model, int num_ranks,
                  const std::vector<std::string>& overrides);

}  // namespace accordion::cli
