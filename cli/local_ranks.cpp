// SPDX-License-Identifier: BSD-3-Clause
#include "cli/local_ranks.h"

#include <filesystem>
#include <stdexcept>

#include <fmt/format.h>

#include "accordion/comm/launcher.h"
#include "accordion/train/trainer.h"

namespace accordion::cli {

void add_no_bind(CLI::App& command, bool& bind_to_cores) {
  command.add_flag(
      "--no-bind{false}", bind_to_cores,
      "Let ranks run on all cores; else each gets a part of its own, where "
      "there are at least as many cores as ranks");
}

void add_max_restarts(CLI::App& command, int& max_restarts) {
  command
      .add_option("--max-restarts", max_restarts,
                  "How often all ranks are started again after one failed; "
                  "`accordion train` then goes on from the newest checkpoint "
                  "(default 0)")
      ->check(CLI::NonNegativeNumber);
}

CLI::Option* add_run_options(CLI::App& command, RunFlags& flags,
                             const std::string& about) {
  CLI::Option* const config = command.add_option("config", flags.config, about);
  command.add_option("overrides", flags.overrides,
                     "KEY=VALUE pairs that replace keys of the configuration");
  command
      .add_option("--nproc", flags.num_ranks,
                  "Ranks to start on this host; leave it out under torchrun, "
                  "mpirun or srun (default 1)")
      ->check(CLI::PositiveNumber);
  add_no_bind(command, flags.bind_to_cores);
  return config;
}

void check_not_a_rank(const std::string& command, int num_ranks,
                      const Rendezvous& rendezvous) {
  if (rendezvous.launcher != "none" && num_ranks > 0) {
    throw std::invalid_argument(fmt::format(
        "[{}] --nproc {} starts ranks, but this process is rank {} of {} under "
        "{} already. Leave --nproc out.",
        command, num_ranks, rendezvous.rank, rendezvous.world_size,
        rendezvous.launcher));
  }
}

int start_ranks(const std::string& name, const TrainConfig& config,
                const RunFlags& flags, const std::vector<std::string>& more) {
  check_run(config, {.world_size = flags.num_ranks,
                     .local_world_size = flags.num_ranks});
  LaunchOptions launch;
  launch.command = {std::filesystem::read_symlink("/proc/self/exe").string(),
                    name, flags.config};
  for (const auto* arguments : {&flags.overrides, &more}) {
    launch.command.insert(launch.command.end(), arguments->begin(),
                          arguments->end());
  }
  launch.num_ranks = flags.num_ranks;
  launch.rank0_keeps_terminal = true;
  launch.bind_to_cores = flags.bind_to_cores;
  launch.max_restarts = flags.max_restarts;
  return run_local_ranks(launch);
}

}  // namespace accordion::cli
