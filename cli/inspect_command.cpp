// SPDX-License-Identifier: BSD-3-Clause
#include <memory>
#include <string>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "accordion/checkpoint/inspect.h"
#include "cli/commands.h"

namespace accordion::cli {
namespace {

struct InspectFlags {
  std::string path;
  InspectOptions options;
  bool json = false;
  bool values = false;
};

int run_inspect(const InspectFlags& flags) {
  TensorSource source = TensorSource::open(flags.path);
  const InspectReport report = inspect(source, flags.options);
  if (flags.json) {
    fmt::print("{}", to_json(report));
  } else if (!flags.options.tensor.empty()) {
    fmt::print("{}", to_tensor_text(report));
  } else {
    fmt::print("{}", to_text(report, flags.values));
  }
  return 0;
}

}  // namespace

void add_inspect(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<InspectFlags>();
  CLI::App* const command = app.add_subcommand(
      "inspect", "Show what a checkpoint or a file of weights holds");
  command
      ->add_option("path", flags->path,
                   "A checkpoint; a run folder, for its newest checkpoint; a "
                   ".safetensors file; or a Hugging Face folder")
      ->required();
  command
      ->add_option("--tensor", flags->options.tensor,
                   "Only this tensor: where its elements lie, rank by rank")
      ->type_name("NAME");
  command->add_flag("--stats", flags->options.with_statistics,
                    "Read every element: min, max, mean, rms, NaN and inf");
  command->add_flag("--values", flags->values,
                    "Print long values, as a configuration, in full");
  command->add_flag("--no-verify{false}", flags->options.verify,
                    "Do not read a checkpoint to verify its checksums");
  command->add_flag("--json", flags->json, "Print JSON in place of tables");
  command->callback([flags, &exit_code] { exit_code = run_inspect(*flags); });
}

}  // namespace accordion::cli
