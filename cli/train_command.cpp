// SPDX-License-Identifier: BSD-3-Clause
#include <memory>
#include <stdexcept>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "accordion/comm/rendezvous.h"
#include "accordion/train/train_config.h"
#include "accordion/train/trainer.h"
#include "cli/commands.h"
#include "cli/local_ranks.h"

namespace accordion::cli {
namespace {

struct TrainFlags : RunFlags {
  bool print_config = false;
  bool help_config = false;
  std::string resume;
};

int run_train(const TrainFlags& flags) {
  if (flags.help_config) {
    fmt::print("{}", config_help());
    return 0;
  }
  if (flags.config.empty()) {
    throw std::invalid_argument(
        "[train] No configuration was named. Write `accordion train "
        "CONFIG.toml`; `accordion train --help-config` explains its keys.");
  }
  const TrainConfig config = load_config(flags.config, flags.overrides);
  if (flags.print_config) {
    fmt::print("{}", to_toml(config));
    return 0;
  }
  const Rendezvous rendezvous = Rendezvous::from_environment();
  check_not_a_rank("train", flags.num_ranks, rendezvous);
  if (flags.num_ranks > 1) {
    std::vector<std::string> more;
    if (!flags.resume.empty()) {
      more = {"--resume", flags.resume};
    }
    return start_ranks("train", config, flags, more);
  }
  train(config, rendezvous, flags.resume);
  return 0;
}

}  // namespace

void add_train(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<TrainFlags>();
  CLI::App* const command =
      app.add_subcommand("train", "Train a model as a configuration says");
  add_run_options(*command, *flags, "CONFIG.toml; see --help-config");
  command->add_option(
      "--resume", flags->resume,
      "auto: go on from the newest checkpoint in run.dir, or begin where there "
      "is none; or the path of a run or a checkpoint to go on from");
  command->add_flag("--print-config", flags->print_config,
                    "Print the resolved configuration and end");
  command->add_flag("--help-config", flags->help_config,
                    "Explain every key of a configuration and end");
  command->callback([flags, &exit_code] { exit_code = run_train(*flags); });
}

}  // namespace accordion::cli
