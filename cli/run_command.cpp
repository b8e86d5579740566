// SPDX-License-Identifier: BSD-3-Clause
#include <memory>

#include <CLI/CLI.hpp>

#include "accordion/comm/launcher.h"
#include "cli/commands.h"
#include "cli/local_ranks.h"

namespace accordion::cli {

void add_run(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<LaunchOptions>();
  CLI::App* const command = app.add_subcommand(
      "run",
      "Start a program once per rank: accordion run --nproc N -- "
      "PROGRAM ARGS");
  command->add_option("--nproc", options->num_ranks, "Ranks to start")
      ->check(CLI::PositiveNumber)
      ->required();
  add_no_bind(*command, options->bind_to_cores);
  add_max_restarts(*command, options->max_restarts);
  command
      ->add_option("program", options->command,
                   "PROGRAM and its arguments, after --")
      ->required();
  command->callback(
      [options, &exit_code] { exit_code = run_local_ranks(*options); });
}

}  // namespace accordion::cli
