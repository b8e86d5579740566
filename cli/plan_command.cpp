// SPDX-License-Identifier: BSD-3-Clause
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "accordion/models/llama_config.h"
#include "accordion/plan/validate.h"
#include "accordion/train/checkpointing_choice.h"
#include "accordion/train/config_options.h"
#include "accordion/train/memory_estimate.h"
#include "accordion/train/planned_schedule.h"
#include "accordion/train/train_config.h"
#include "cli/commands.h"

namespace accordion::cli {
namespace {

struct PlanFlags {
  std::string model;
  std::string published;
  int num_ranks = 2;
  Microbatch microbatch = Microbatch::Only;
  std::vector<std::string> overrides;
};

/// A configuration of a run brings its own model and fsdp keys; a bare model
/// takes their defaults.
TrainConfig config_of(const PlanFlags& flags) {
  if (flags.model.ends_with(".toml")) {
    return load_config(flags.model, flags.overrides);
  }
  TrainConfig config;
  std::vector<std::string> overrides = flags.overrides;
  overrides.insert(overrides.begin(),
                   {"model.config=" + flags.model, "data.path=none"});
  return parse_config("", "command line", overrides);
}

int run_plan(const PlanFlags& flags) {
  const TrainConfig given = config_of(flags);
  const auto axes = mesh_axes(given, {.world_size = flags.num_ranks,
                                      .local_world_size = flags.num_ranks});
  const LlamaConfig model = LlamaConfig::from_file(given.model.config);
  const TrainConfig config = with_checkpointing(given, model, axes);
  const StepSchedule schedule =
      planned_schedule(model, fsdp_options(config), axes, flags.microbatch);
  const bool shares_slots = config.fsdp.backend != "gloo";
  const MemoryByKind memory =
      estimated_memory(model, config, axes, shares_slots);
  fmt::print("{}\n{}\na rank holds about {} at most: {}\n", to_table(schedule),
             schedule_totals(schedule), describe_bytes(memory.total()),
             describe(memory));
  return 0;
}

/// Lines for programs go to stdout, the summary for people to stderr.
int run_validation(const std::string& published) {
  const std::vector<plan::RowResult> results = plan::validate_file(published);
  for (const plan::RowResult& result : results) {
    fmt::print("{}\n", plan::to_json_line(result));
  }
  fmt::print(stderr, "{}", plan::to_table(plan::summarize(results)));
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, int& exit_code) {
  const std::map<std::string, Microbatch> microbatches = {
      {"only", Microbatch::Only},
      {"first", Microbatch::First},
      {"middle", Microbatch::Middle},
      {"last", Microbatch::Last}};
  auto flags = std::make_shared<PlanFlags>();
  CLI::App* const command =
      app.add_subcommand("plan", "Show what a run will do before it runs");
  CLI::Option_group* const what = command->add_option_group("What to show");
  what->require_option(1);
  what->add_option("--validate", flags->published,
                   "Compare predictions with the published runs of this file "
                   "(docs/planner_accuracy.md): one line of JSON a figure, and "
                   "a summary by group on stderr")
      ->type_name("FILE.json");
  what->add_option("--schedule", flags->model,
                   "Print the schedule of a step of this model: a Hugging Face "
                   "config.json, or a configuration of a run")
      ->type_name("MODEL");
  command->add_option("--nproc", flags->num_ranks, "Ranks")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--microbatch", flags->microbatch,
                   "A pass of a step that accumulates gradients")
      ->transform(CLI::CheckedTransformer(microbatches, CLI::ignore_case))
      ->default_str("only");
  command->add_option("overrides", flags->overrides,
                      "KEY=VALUE pairs, as fsdp.strategy=no_shard or "
                      "fsdp.prefetch=2");
  command->callback([flags, &exit_code] {
    exit_code = flags->published.empty() ? run_plan(*flags)
                                         : run_validation(flags->published);
  });
}

}  // namespace accordion::cli
