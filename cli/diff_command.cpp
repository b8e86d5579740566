// SPDX-License-Identifier: BSD-3-Clause
#include <exception>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "accordion/checkpoint/diff.h"
#include "cli/commands.h"

namespace accordion::cli {
namespace {

struct DiffFlags {
  std::string a;
  std::string b;
  std::optional<double> tolerance;
  bool all = false;
};

/// As diff(1): 0 the same, 1 different, 2 an error.
int run_diff(const DiffFlags& flags) {
  try {
    TensorSource a = TensorSource::open(flags.a);
    TensorSource b = TensorSource::open(flags.b);
    const DiffReport report = diff(a, b);
    fmt::print("{}", to_text(report, flags.tolerance, flags.all));
    return is_same(report, flags.tolerance) ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "accordion: {}\n", error.what());
    return 2;
  }
}

}  // namespace

void add_diff(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<DiffFlags>();
  CLI::App* const command = app.add_subcommand(
      "diff", "Compare the tensors of two checkpoints or files of weights");
  command->add_option("a", flags->a, "What `accordion inspect` takes")
      ->required();
  command->add_option("b", flags->b, "What it is compared with")->required();
  command
      ->add_option("--tolerance", flags->tolerance,
                   "Differences up to this do not count: exit code 0 where "
                   "there are no others (default: every bit counts)")
      ->type_name("X")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--all", flags->all, "List identical tensors too");
  command->footer("Exit code: 0 the same, 1 different, 2 an error.");
  command->callback([flags, &exit_code] { exit_code = run_diff(*flags); });
}

}  // namespace accordion::cli
