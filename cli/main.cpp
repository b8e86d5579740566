// SPDX-License-Identifier: BSD-3-Clause
#include <exception>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/commands.h"

int main(int argc, char** argv) {
  CLI::App app("Fully sharded data parallel training on LibTorch.",
               "accordion");
  app.set_version_flag("--version", "accordion " ACCORDION_VERSION);
  app.require_subcommand(1);
  int exit_code = 0;
  accordion::cli::add_train(app, exit_code);
  accordion::cli::add_run(app, exit_code);
  accordion::cli::add_plan(app, exit_code);
  accordion::cli::add_bench(app, exit_code);
  accordion::cli::add_inspect(app, exit_code);
  accordion::cli::add_diff(app, exit_code);
  accordion::cli::add_export(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  } catch (const std::exception& error) {
    fmt::print(stderr, "accordion: {}\n", error.what());
    return 1;
  }
  return exit_code;
}
