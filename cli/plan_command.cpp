// SPDX-License-Identifier: BSD-3-Clause
#include <unistd.h>

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "accordion/plan/explain/explain.h"
#include "accordion/plan/question/plan_keys.h"
#include "accordion/plan/report/answer.h"
#include "accordion/plan/validate.h"
#include "cli/commands.h"
#include "cli/plan_schedule.h"

namespace accordion::cli {
namespace {

struct PlanFlags {
  std::vector<std::string> words;  ///< MODEL and KEY=VALUE pairs
  plan::PlanInput input;
  plan::AnswerOptions options;
  // In place of a plan; empty or false: not asked for.
  std::string published;
  std::string explained;
  ScheduleFlags schedule;
  std::string dry_run;  ///< its model; ranks are schedule's
  bool search = false;
  bool max_model = false;
  bool min_gpus = false;
  bool help_keys = false;
};

/// Lines for programs go to stdout, the summary for people to stderr.
void print_validation(const std::string& published) {
  const std::vector<plan::RowResult> results = plan::validate_file(published);
  for (const plan::RowResult& result : results) {
    fmt::print("{}\n", plan::to_json_line(result));
  }
  fmt::print(stderr, "{}", plan::to_table(plan::summarize(results)));
}

plan::AnswerKind kind_of(const PlanFlags& flags) {
  return flags.search                      ? plan::AnswerKind::Search
         : flags.max_model                 ? plan::AnswerKind::MaxModel
         : flags.min_gpus                  ? plan::AnswerKind::MinGpus
         : !flags.options.compared.empty() ? plan::AnswerKind::Compare
                                           : plan::AnswerKind::Plan;
}

/// The first word is the model unless it is a KEY=VALUE.
void print_answer(const PlanFlags& flags) {
  plan::PlanInput input = flags.input;
  input.keys = flags.words;
  if (!input.keys.empty() &&
      input.keys.front().find('=') == std::string::npos) {
    input.model = input.keys.front();
    input.keys.erase(input.keys.begin());
  }
  plan::AnswerOptions options = flags.options;
  options.kind = kind_of(flags);
  options.style.colour = ::isatty(STDOUT_FILENO) == 1;
  fmt::print("{}", plan::answer(input, options));
}

/// What is shown in place of a plan, and plans no model.
void check_no_words(const PlanFlags& flags) {
  const char* const what = flags.help_keys            ? "--help-keys"
                           : !flags.explained.empty() ? "--explain"
                           : !flags.published.empty() ? "--validate"
                                                      : nullptr;
  if (what != nullptr && !flags.words.empty()) {
    throw std::invalid_argument(
        fmt::format("[plan] '{}' has no meaning with {}. Leave it out.",
                    flags.words.front(), what));
  }
}

/// The exit code of the command.
int run_plan(const PlanFlags& flags) {
  check_no_words(flags);
  if (!flags.dry_run.empty()) {
    return print_dry_run(flags.dry_run, flags.schedule.num_ranks, flags.words);
  }
  if (flags.help_keys) {
    fmt::print("{}", plan::plan_keys_help());
  } else if (!flags.explained.empty()) {
    fmt::print("{}", plan::to_text(plan::explain(flags.explained)));
  } else if (!flags.published.empty()) {
    print_validation(flags.published);
  } else if (!flags.schedule.model.empty()) {
    print_schedule(flags.schedule, flags.words);
  } else {
    print_answer(flags);
  }
  return 0;
}

/// Models, clusters and launchers' files: what is planned.
void add_question(CLI::App& command, PlanFlags& flags) {
  command.add_option("words", flags.words,
                     "MODEL: a Hugging Face config.json or its folder, or a "
                     "name as llama-3-8b; then KEY=VALUE pairs, see "
                     "--help-keys (with --schedule and --dry-run those of a "
                     "run: fsdp.prefetch=2)");
  command
      .add_option("--params", flags.input.params,
                  "In place of MODEL: a Llama of about this many parameters, "
                  "as 70e9, by a rule that is printed")
      ->check(CLI::PositiveNumber);
  command
      .add_option("--cluster", flags.input.cluster,
                  "8xH100, 16x8xH100-IB (16 hosts), 4x8xA100-40GB-Ethernet-100 "
                  "or a FILE.toml")
      ->capture_default_str();
  command
      .add_option("--deepspeed", flags.input.deepspeed,
                  "Take settings from a ds_config.json")
      ->type_name("FILE");
  command
      .add_option("--accelerate", flags.input.accelerate,
                  "Take settings from accelerate's YAML or the Hugging Face "
                  "Trainer's JSON")
      ->type_name("FILE");
}

/// What is shown in place of a plan: one of these at most.
CLI::Option_group& add_kinds(CLI::App& command, PlanFlags& flags) {
  CLI::Option_group& what = *command.add_option_group("In place of a plan");
  what.require_option(0, 1);
  what.add_flag("--search", flags.search,
                "The fastest plans that fit, over strategies, meshes, tensor "
                "ranks, microbatches and checkpointing; stated keys stay");
  what.add_option("--compare", flags.options.compared,
                  "Two plans side by side, each KEY=VALUE,KEY=VALUE on top of "
                  "the others; cluster=… and model=… too")
      ->type_name("A B")
      ->expected(2);
  what.add_flag("--max-model", flags.max_model,
                "The largest model that fits the cluster; no MODEL");
  what.add_flag("--min-gpus", flags.min_gpus,
                "The fewest GPUs of the cluster's type that hold the model");
  what.add_option("--explain", flags.explained,
                  fmt::format("A rule or an example with numbers: {}",
                              fmt::join(plan::explanation_names(), ", ")))
      ->type_name("NAME");
  what.add_flag("--help-keys", flags.help_keys,
                "Explain every KEY of KEY=VALUE and end");
  what.add_option("--validate", flags.published,
                  "Compare predictions with the published runs of this file "
                  "(docs/planner_accuracy.md): one line of JSON a figure, and "
                  "a summary by group on stderr")
      ->type_name("FILE.json");
  return what;
}

void add_runs(CLI::App& command, CLI::Option_group& what, PlanFlags& flags) {
  const std::map<std::string, Microbatch> microbatches = {
      {"only", Microbatch::Only},
      {"first", Microbatch::First},
      {"middle", Microbatch::Middle},
      {"last", Microbatch::Last}};
  CLI::Option* const schedule =
      what.add_option("--schedule", flags.schedule.model,
                      "Print the schedule of a step of this model: a Hugging "
                      "Face config.json, or a configuration of a run")
          ->type_name("MODEL");
  CLI::Option* const dry_run =
      what.add_option("--dry-run", flags.dry_run,
                      "Execute a step of this model as one of the ranks, "
                      "without memory or arithmetic, and compare collectives, "
                      "bytes and memory with the plan; status 1 where they "
                      "differ")
          ->type_name("MODEL");
  command
      .add_option("--nproc", flags.schedule.num_ranks,
                  "Ranks of --schedule or --dry-run")
      ->capture_default_str()
      ->check(CLI::PositiveNumber)
      ->each([schedule, dry_run](const std::string&) {
        if (schedule->count() + dry_run->count() == 0) {
          throw CLI::RequiresError("--nproc", "--schedule or --dry-run");
        }
      });
  command
      .add_option("--microbatch", flags.schedule.microbatch,
                  "With --schedule: a pass of a step that accumulates "
                  "gradients")
      ->transform(CLI::CheckedTransformer(microbatches, CLI::ignore_case))
      ->default_str("only")
      ->needs(schedule);
}

/// Other forms of the answer.
void add_forms(CLI::App& command, PlanFlags& flags) {
  command.add_flag("--json", flags.options.json,
                   "Print JSON in place of tables: bytes, seconds");
  command
      .add_option("--html", flags.options.html_path,
                  "Also write one page: tables, memory and streams over a step")
      ->type_name("FILE");
}

/// What belongs to a plan is refused where none is made.
void exclude_what_plans(CLI::App& command, CLI::Option_group& what) {
  for (const char* const planning : {"--params", "--cluster", "--deepspeed",
                                     "--accelerate", "--json", "--html"}) {
    for (const char* const other : {"--explain", "--help-keys", "--validate",
                                    "--schedule", "--dry-run"}) {
      command.get_option(planning)->excludes(what.get_option(other));
    }
  }
}

}  // namespace

void add_plan(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<PlanFlags>();
  CLI::App* const command = app.add_subcommand(
      "plan",
      "Show what a run will do before it runs: whether it fits, how fast it "
      "is, what limits it and what to change");
  add_question(*command, *flags);
  CLI::Option_group& what = add_kinds(*command, *flags);
  add_runs(*command, what, *flags);
  add_forms(*command, *flags);
  exclude_what_plans(*command, what);
  command->callback([flags, &exit_code] { exit_code = run_plan(*flags); });
}

}  // namespace accordion::cli
