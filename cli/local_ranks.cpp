// SPDX-License-Identifier: BSD-3-Clause
#include "cli/local_ranks.h"

#include <filesystem>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "accordion/comm/launcher.h"

namespace accordion::cli {

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

int start_ranks(std::vector<std::string> arguments, int num_ranks) {
  LaunchOptions launch;
  launch.command = std::move(arguments);
  launch.command.insert(
      launch.command.begin(),
      std::filesystem::read_symlink("/proc/self/exe").string());
  launch.num_ranks = num_ranks;
  launch.rank0_keeps_terminal = true;
  return run_local_ranks(launch);
}

}  // namespace accordion::cli
