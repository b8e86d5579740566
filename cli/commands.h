// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <CLI/App.hpp>

namespace accordion::cli {

/// Each adds one subcommand, which sets `exit_code` when it runs.
void add_train(CLI::App& app, int& exit_code);
void add_run(CLI::App& app, int& exit_code);
void add_plan(CLI::App& app, int& exit_code);
void add_bench(CLI::App& app, int& exit_code);
/// Of `bench`.
void add_calibrate(CLI::App& bench, int& exit_code);
void add_inspect(CLI::App& app, int& exit_code);
void add_diff(CLI::App& app, int& exit_code);
void add_export(CLI::App& app, int& exit_code);

}  // namespace accordion::cli
