// SPDX-License-Identifier: BSD-3-Clause
#include <ctime>
#include <filesystem>
#include <memory>
#include <stdexcept>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "accordion/comm/rendezvous.h"
#include "accordion/train/run_folder.h"
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

/// Starts the ranks of a run. One that may be restarted has its folder from the
/// start: the ranks of the next attempt must find it.
int start_training(const TrainConfig& config, const TrainFlags& flags) {
  std::vector<std::string> more;
  if (!flags.resume.empty()) {
    more = {"--resume", flags.resume};
  }
  if (flags.max_restarts > 0 && config.run.dir.empty()) {
    if (!flags.resume.empty()) {
      throw std::invalid_argument(
          "[train] --max-restarts with --resume needs run.dir, where the next "
          "attempt finds the run. Set run.dir.");
    }
    const std::filesystem::path model = config.model.config;
    more.push_back("run.dir=" + create_run_folder("", model.stem().string(),
                                                  std::time(nullptr))
                                    .string());
  }
  return start_ranks("train", config, flags, more);
}

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
  if (flags.num_ranks > 1 || flags.max_restarts > 0) {
    return start_training(config, flags);
  }
  train(config, rendezvous,
        rendezvous.restart_count > 0 ? "auto" : flags.resume);
  return 0;
}

}  // namespace

void add_train(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<TrainFlags>();
  CLI::App* const command =
      app.add_subcommand("train", "Train a model as a configuration says");
  add_run_options(*command, *flags, "CONFIG.toml; see --help-config");
  add_max_restarts(*command, flags->max_restarts);
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
