// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "accordion/comm/rendezvous.h"
#include "accordion/train/train_config.h"

namespace accordion::cli {

/// What every command that runs a configuration takes.
struct RunFlags {
  std::string config;
  std::vector<std::string> overrides;
  int num_ranks = 0;  ///< 0: not given
  bool bind_to_cores = true;
  int max_restarts = 0;
};

/// Adds --no-bind, which clears `bind_to_cores`.
void add_no_bind(CLI::App& command, bool& bind_to_cores);

/// Adds --max-restarts.
void add_max_restarts(CLI::App& command, int& max_restarts);

/// Adds the options to `command`, the configuration with its own `about`.
/// Returns that one.
CLI::Option* add_run_options(CLI::App& command, RunFlags& flags,
                             const std::string& about);

/// Throws std::invalid_argument, with `command` as prefix, where --nproc was
/// given (`num_ranks` > 0) to a process that a launcher made a rank already.
void check_not_a_rank(const std::string& command, int num_ranks,
                      const Rendezvous& rendezvous);

/// Checks the run once, for one error instead of one a rank, and starts its
/// ranks as processes of this same command `name`, with the configuration, its
/// overrides and `more`; they learn from their environment that they are ranks.
/// Returns what run_local_ranks returns.
int start_ranks(const std::string& name, const TrainConfig& config,
                const RunFlags& flags,
                const std::vector<std::string>& more = {});

}  // namespace accordion::cli
