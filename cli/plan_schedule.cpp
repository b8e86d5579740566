// SPDX-License-Identifier: BSD-3-Clause
#include "cli/plan_schedule.h"

#include <fmt/format.h>

#include "accordion/models/llama_config.h"
#include "accordion/train/checkpointing_choice.h"
#include "accordion/train/config_options.h"
#include "accordion/train/dry_run.h"
#include "accordion/train/memory_estimate.h"
#include "accordion/train/train_config.h"

namespace accordion::cli {
namespace {

/// A configuration of a run brings its own model and fsdp keys; a bare model
/// takes their defaults.
TrainConfig config_of(const std::string& model,
                      std::vector<std::string> overrides) {
  if (model.ends_with(".toml")) {
    return load_config(model, overrides);
  }
  overrides.insert(overrides.begin(),
                   {"model.config=" + model, "data.path=none"});
  return parse_config("", "command line", overrides);
}

}  // namespace

void print_schedule(const ScheduleFlags& flags,
                    const std::vector<std::string>& overrides) {
  const TrainConfig given = config_of(flags.model, overrides);
  const auto axes = mesh_axes(given, {.world_size = flags.num_ranks,
                                      .local_world_size = flags.num_ranks});
  const LlamaConfig model = LlamaConfig::from_file(given.model.config);
  const TrainConfig config = with_checkpointing(given, model, axes);
  const bool shared = shares_memory(config);
  const StepSchedule schedule = planned_schedule(
      model, fsdp_options(config), axes, shared, flags.microbatch);
  const MemoryByKind memory = estimated_memory(model, config, axes, shared);
  fmt::print("{}\n{}\na rank holds about {} at most: {}\n", to_table(schedule),
             schedule_totals(schedule), describe_bytes(memory.total()),
             describe(memory));
}

int print_dry_run(const std::string& model, int num_ranks,
                  const std::vector<std::string>& overrides) {
  const DryRun run = dry_run(config_of(model, overrides), num_ranks);
  fmt::print("{}", to_table(run));
  const std::vector<std::string> different = differences(run);
  for (const std::string& difference : different) {
    fmt::print(stderr, "differs: {}\n", difference);
  }
  return different.empty() ? 0 : 1;
}

}  // namespace accordion::cli
