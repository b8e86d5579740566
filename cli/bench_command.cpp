// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "accordion/comm/rendezvous.h"
#include "accordion/train/bench.h"
#include "accordion/train/bench_report.h"
#include "accordion/train/train_config.h"
#include "cli/commands.h"
#include "cli/local_ranks.h"

namespace accordion::cli {
namespace {

struct BenchFlags : RunFlags {
  std::int64_t steps = BenchOptions().steps;
  bool json = false;
  std::string trace;
  std::string cluster;
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

/// The file of a rank's trace; none where only rank 0 has one.
std::string trace_file(const std::string& pattern, int rank) {
  static constexpr std::string_view kRank = "{rank}";
  const std::size_t at = pattern.find(kRank);
  if (at == std::string::npos) {
    return rank == 0 ? pattern : "";
  }
  return std::string(pattern).replace(at, kRank.size(), std::to_string(rank));
}

/// What the ranks are told beside the configuration.
std::vector<std::string> rank_arguments(const BenchFlags& flags) {
  std::vector<std::string> arguments = {"--steps", std::to_string(flags.steps)};
  if (flags.json) {
    arguments.emplace_back("--json");
  }
  if (!flags.trace.empty()) {
    arguments.insert(arguments.end(), {"--trace", flags.trace});
  }
  if (!flags.cluster.empty()) {
    arguments.insert(arguments.end(), {"--cluster", flags.cluster});
  }
  return arguments;
}

int run_bench(const BenchFlags& flags) {
  if (flags.config.empty()) {
    throw std::invalid_argument(
        "[bench] config is required: write accordion bench CONFIG.toml, or "
        "accordion bench calibrate to measure the machine.");
  }
  const TrainConfig config = load_config(flags.config, flags.overrides);
  const Rendezvous rendezvous = Rendezvous::from_environment();
  check_not_a_rank("bench", flags.num_ranks, rendezvous);
  const std::string trace = trace_file(flags.trace, rendezvous.rank);
  if (!trace.empty()) {
    write_trace(trace, "");  // an error before the work, not after it
  }
  // One rank is started as several are, so that their figures compare.
  if (flags.num_ranks > 0) {
    return start_ranks("bench", config, flags, rank_arguments(flags));
  }
  std::optional<plan::Cluster> cluster;
  if (!flags.cluster.empty()) {
    cluster = plan::cluster_from_file(flags.cluster);
  }
  const BenchResult result =
      bench(config, rendezvous,
            {.steps = flags.steps, .cluster = cluster ? &*cluster : nullptr});
  if (rendezvous.rank == 0) {
    fmt::print("{}", flags.json ? to_json(result) : to_table(result));
  }
  if (!trace.empty()) {
    write_trace(trace, result.trace_json);
    fmt::print(stderr,
               "Trace of the last step: {}; open it in ui.perfetto.dev\n",
               trace);
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
  add_run_options(*command, *flags, "CONFIG.toml, as for `accordion train`");
  add_calibrate(*command, exit_code);
  command->add_option("--steps", flags->steps, "Steps to measure")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", flags->json, "Print JSON in place of a table");
  command
      ->add_option("--trace", flags->trace,
                   "Write rank 0's last step to FILE, for chrome://tracing or "
                   "ui.perfetto.dev; where FILE contains {rank}, that of every "
                   "rank")
      ->type_name("FILE");
  command
      ->add_option(
          "--cluster", flags->cluster,
          "Predict the step beside what is measured, for the host that "
          "`accordion bench calibrate` wrote to FILE.toml")
      ->type_name("FILE.toml");
  command->callback([command, flags, &exit_code] {
    if (command->get_subcommands().empty()) {
      exit_code = run_bench(*flags);
    }
  });
}

}  // namespace accordion::cli
