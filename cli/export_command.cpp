// SPDX-License-Identifier: BSD-3-Clause
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "accordion/train/run_export.h"
#include "cli/commands.h"

namespace accordion::cli {
namespace {

struct ExportFlags {
  std::string from;
  std::string to;
  ExportOptions options;
};

int run_export(const ExportFlags& flags) {
  const auto begin = std::chrono::steady_clock::now();
  const ExportResult result = export_run(flags.from, flags.to, flags.options);
  const std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - begin;
  fmt::print(
      "{}\n{}: {} files, {} bytes, {} parameters; written and verified "
      "in {:.2f} s\n",
      result.checkpoint.string(), flags.to, result.folder.num_files,
      result.folder.bytes, result.folder.numel, seconds.count());
  if (!result.has_tokenizer) {
    fmt::print("Without tokenizer files; --tokenizer adds some.\n");
  }
  return 0;
}

}  // namespace

void add_export(CLI::App& app, int& exit_code) {
  const std::map<std::string, std::string> dtypes = {
      {"stored", ""}, {"fp32", "F32"}, {"bf16", "BF16"}, {"fp16", "F16"}};
  auto flags = std::make_shared<ExportFlags>();
  CLI::App* const command = app.add_subcommand(
      "export", "Write a checkpoint as a Hugging Face folder");
  command
      ->add_option("from", flags->from,
                   "A run folder, of which the newest checkpoint is taken, or "
                   "a checkpoint")
      ->type_name("RUN_OR_CHECKPOINT")
      ->required();
  command
      ->add_option("--to", flags->to,
                   "The folder to make; nothing is overwritten")
      ->type_name("DIR")
      ->required();
  command
      ->add_option("--dtype", flags->options.dtype,
                   "Of the weights: stored, fp32, bf16 or fp16")
      ->transform(CLI::CheckedTransformer(dtypes, CLI::ignore_case))
      ->default_str("stored");
  command
      ->add_option("--max-shard-bytes", flags->options.max_shard_bytes,
                   "Spread more weights than this over several files")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--tokenizer", flags->options.tokenizer,
                   "In place of the run's: bytes, a SentencePiece .model, or "
                   "none")
      ->type_name("NAME");
  command
      ->add_option("--threads", flags->options.num_threads,
                   "That read and write; 0: as many as cores")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->callback([flags, &exit_code] { exit_code = run_export(*flags); });
}

}  // namespace accordion::cli
