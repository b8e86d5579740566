// SPDX-License-Identifier: BSD-3-Clause
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "accordion/comm/launcher.h"
#include "accordion/train/calibration.h"
#include "cli/commands.h"
#include "cli/local_ranks.h"

namespace accordion::cli {
namespace {

struct CalibrateFlags {
  int num_ranks = 0;  ///< 0: not given
  bool bind_to_cores = true;
  std::string to;
  std::string scratch;
};

void write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  if (!file) {
    throw std::runtime_error(fmt::format(
        "[calibrate] The cluster cannot be written to '{}'. Name a file in a "
        "folder that exists.",
        path));
  }
}

/// As processes of their own, one rank too, so that they are what the ranks of
/// a run are.
int start_ranks(const CalibrateFlags& flags) {
  LaunchOptions launch;
  launch.command = {std::filesystem::read_symlink("/proc/self/exe").string(),
                    "bench", "calibrate"};
  if (!flags.to.empty()) {
    launch.command.insert(launch.command.end(), {"--to", flags.to});
  }
  if (!flags.scratch.empty()) {
    launch.command.insert(launch.command.end(), {"--scratch", flags.scratch});
  }
  launch.num_ranks = flags.num_ranks;
  launch.rank0_keeps_terminal = true;
  launch.bind_to_cores = flags.bind_to_cores;
  return run_local_ranks(launch);
}

int run_calibrate(const CalibrateFlags& flags) {
  const Rendezvous rendezvous = Rendezvous::from_environment();
  check_not_a_rank("calibrate", flags.num_ranks, rendezvous);
  if (flags.num_ranks > 0) {
    return start_ranks(flags);
  }
  const plan::Cluster cluster =
      calibrate(rendezvous, {.scratch = flags.scratch});
  if (rendezvous.rank != 0) {
    return 0;
  }
  const std::string text = fmt::format(
      "# `accordion bench calibrate --nproc {}` measured this host: a rank's "
      "share,\n# all ranks at once. For `accordion plan --cluster` and "
      "`accordion bench --cluster`.\n{}",
      rendezvous.world_size, plan::to_toml(cluster));
  if (flags.to.empty()) {
    fmt::print("{}", text);
  } else {
    write(flags.to, text);
  }
  return 0;
}

}  // namespace

void add_calibrate(CLI::App& bench, int& exit_code) {
  auto flags = std::make_shared<CalibrateFlags>();
  CLI::App* const command = bench.add_subcommand(
      "calibrate",
      "Measure this host in a minute, all ranks at once: products, attention, "
      "collectives and steps of small models, as a cluster that the planner "
      "reads");
  command
      ->add_option("--nproc", flags->num_ranks,
                   "Ranks to start on this host (default 1)")
      ->check(CLI::PositiveNumber);
  add_no_bind(*command, flags->bind_to_cores);
  command
      ->add_option("--to", flags->to,
                   "Write the cluster to FILE.toml instead of stdout")
      ->type_name("FILE.toml");
  command
      ->add_option("--scratch", flags->scratch,
                   "Measure the disk of DIR too, which runs offload to")
      ->type_name("DIR")
      ->check(CLI::ExistingDirectory);
  command->callback([flags, &exit_code] { exit_code = run_calibrate(*flags); });
}

}  // namespace accordion::cli
