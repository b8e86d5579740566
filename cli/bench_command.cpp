// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "accordion/comm/rendezvous.h"
#include "accordion/train/bench.h"
#include "accordion/train/bench_report.h"
#include "accordion/train/train_config.h"
#include "accordion/train/trainer.h"
#include "cli/commands.h"
#include "cli/local_ranks.h"

namespace accordion::cli {
namespace {

struct BenchFlags {
  std::string config;
  std::vector<std::string> overrides;
  int num_ranks = 0;  // 0: not given
  std::int64_t steps = BenchOptions().steps;
  bool json = false;
  std::string trace;
};

void write_trace(const std::string& path, const std::string& json) {
  std::ofstream file(path);
  file << json << std::flush;
  if (!file) {
    throw std::runtime_error(
        fmt::format("[bench] The trace cannot be written to '{}'. Name a file "
                    "in a folder that exists, on a disk with room.",
                    path));
  }
}

/// The same command for the ranks.
std::vector<std::string> arguments_of(const BenchFlags& flags) {
  std::vector<std::string> arguments = {"bench", flags.config};
  arguments.insert(arguments.end(), flags.overrides.begin(),
                   flags.overrides.end());
  arguments.insert(arguments.end(), {"--steps", std::to_string(flags.steps)});
  if (flags.json) {
    arguments.emplace_back("--json");
  }
  if (!flags.trace.empty()) {
    arguments.insert(arguments.end(), {"--trace", flags.trace});
  }
  return arguments;
}

int run_bench(const BenchFlags& flags) {
  const TrainConfig config = load_config(flags.config, flags.overrides);
  const Rendezvous rendezvous = Rendezvous::from_environment();
  check_not_a_rank("bench", flags.num_ranks, rendezvous);
  if (!flags.trace.empty() && rendezvous.rank == 0) {
    write_trace(flags.trace, "");  // an error before the work, not after it
  }
  // One rank is started as several are, so that their figures compare.
  if (flags.num_ranks > 0) {
    check_run(config, {.world_size = flags.num_ranks,
                       .local_world_size = flags.num_ranks});  // one error
    return start_ranks(arguments_of(flags), flags.num_ranks);
  }
  const BenchResult result = bench(config, rendezvous, {.steps = flags.steps});
  if (rendezvous.rank == 0) {
    fmt::print("{}", flags.json ? to_json(result) : to_table(result));
    if (!flags.trace.empty()) {
      write_trace(flags.trace, result.trace_json);
      fmt::print(stderr,
                 "Trace of the last step: {}; open it in "
                 "ui.perfetto.dev\n",
                 flags.trace);
    }
  }
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* const command = app.add_subcommand(
      "bench",
      "Measure the steps of a configuration: speed, and where the "
      "time goes; no run folder");
  command
      ->add_option("config", flags->config,
                   "CONFIG.toml, as for `accordion train`")
      ->required();
  command->add_option("overrides", flags->overrides,
                      "KEY=VALUE pairs that replace keys of the configuration");
  command
      ->add_option("--nproc", flags->num_ranks,
                   "Ranks to start on this host; leave it out under torchrun, "
                   "mpirun or srun (default 1)")
      ->check(CLI::PositiveNumber);
  command->add_option("--steps", flags->steps, "Steps to measure")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", flags->json, "Print JSON in place of a table");
  command
      ->add_option("--trace", flags->trace,
                   "Write rank 0's last step to FILE, for chrome://tracing or "
                   "ui.perfetto.dev")
      ->type_name("FILE");
  command->callback([flags, &exit_code] { exit_code = run_bench(*flags); });
}

}  // namespace accordion::cli
