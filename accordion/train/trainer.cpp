// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/trainer.h"

#include <ctime>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "accordion/checkpoint/durable_file.h"
#include "accordion/train/checkpointing_choice.h"
#include "accordion/train/config_options.h"
#include "accordion/train/rank_agreement.h"
#include "accordion/train/run_folder.h"
#include "accordion/train/run_setup.h"
#include "accordion/train/run_start.h"
#include "accordion/train/training_run.h"

namespace accordion {

void check_run(const TrainConfig& config, const Rendezvous& rendezvous) {
  (void)mesh_axes(config, rendezvous);
  const auto tokenizer = open_tokenizer(config.data.tokenizer);
  check_data(config, *tokenizer, open_model_config(config).vocab_size);
}

namespace {

/// Whether a run that is resumed has nothing left to do.
bool is_complete(const TrainConfig& config, const RunStart& start) {
  const bool all_steps =
      config.train.steps > 0 && start.position.step >= config.train.steps;
  const bool all_time = config.train.seconds > 0 &&
                        start.position.elapsed_seconds >= config.train.seconds;
  return !start.checkpoint.empty() && (all_steps || all_time);
}

/// Decides on rank 0 where the run begins, and prepares its folder, which is
/// this run's alone while there is a lock.
RunStart begin_run(const TrainConfig& config, RunSetup& setup,
                   const std::string& resume, std::optional<RunLock>& lock) {
  const RunStart start = parse_run_start(text_from_rank_0(
      setup.mesh.world(),
      [&] {
        const RunStart found =
            find_run_start(config, resume, std::time(nullptr));
        lock.emplace(found.folder);
        tidy_checkpoints(checkpoints_folder(config, found.folder),
                         keep_rule(config));
        return to_text(found);
      },
      "run folder"));
  setup.data.sampler.continue_from(start.position.step, start.position.samples);
  setup.config = with_steps(config, setup.data.sampler);
  return start;
}

void write_config(const RunStart& start, RunSetup& setup) {
  text_from_rank_0(
      setup.mesh.world(),
      [&] {
        replace_file(config_file(start.folder), to_toml(setup.config));
        keep_metrics_before(metrics_file(start.folder), start.position.step);
        return std::string();
      },
      "run folder");
}

}  // namespace

TrainResult train(const TrainConfig& given, const Rendezvous& rendezvous,
                  const std::string& resume) {
  const TrainConfig config = with_checkpointing(given, rendezvous);
  if (rendezvous.rank == 0 && given.memory.activation_checkpointing !=
                                  config.memory.activation_checkpointing) {
    fmt::print("memory.activation_checkpointing is \"{}\", to fit {}\n",
               config.memory.activation_checkpointing, config.memory.limit);
  }
  RunSetup setup = prepare_run(config, rendezvous);
  std::optional<RunLock> lock;  // of rank 0
  const RunStart start = begin_run(config, setup, resume, lock);
  TrainResult result;
  result.run_folder = start.folder;
  if (is_complete(setup.config, start)) {
    if (rendezvous.rank == 0) {
      drop_cut_off_line(metrics_file(start.folder));  // killed in its summary
      fmt::print(
          "The run in {} has done its {} steps. Raise train.steps, or "
          "train.seconds, to go on.\n",
          start.folder.string(), start.position.step);
    }
    result.summary.steps = start.position.step;
    return result;
  }
  write_config(start, setup);
  result.summary = TrainingRun(setup.config, setup.mesh, setup.model,
                               *setup.tokenizer, std::move(setup.data), start)
                       .execute();
  return result;
}

}  // namespace accordion
