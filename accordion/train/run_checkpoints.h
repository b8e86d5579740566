// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include <torch/nn/module.h>

#include "accordion/checkpoint/checkpoint_saver.h"
#include "accordion/optim/adamw.h"
#include "accordion/train/run_position.h"
#include "accordion/train/run_report.h"
#include "accordion/train/train_config.h"

namespace accordion {

/// The checkpoints of a run: when they are saved, and what is said about it.
///
/// A save that fails (a full disk) does not end the run: it is reported, the
/// checkpoints before it stay, and the next one is tried in its turn. At the
/// end of the run it is an error.
class RunCheckpoints {
 public:
  /// What it works on; all of it outlives the checkpoints.
  struct Run {
    const TrainConfig& config;
    std::filesystem::path folder;
    torch::nn::Module& model;
    AdamW& optimizer;
    RunReport& report;
  };

  explicit RunCheckpoints(Run run);

  /// Fills model and optimizer from a checkpoint of `step` steps, and notes
  /// which keys have other values than when it was saved. Throws as
  /// load_checkpoint.
  ///
  /// Comm  that of load_checkpoint
  void load(const std::filesystem::path& checkpoint, std::int64_t step);

  /// The newest complete checkpoint, once a save in flight is over; empty where
  /// there is none.
  ///
  /// Comm  that of CheckpointSaver::finish, and three broadcasts
  std::filesystem::path newest();

  /// Behind each step, `position` being that of the next: starts a save where
  /// one is due, and carries one in flight on.
  ///
  /// Comm  one all-gather of 4 bytes a step while a save is in flight; that of
  ///       CheckpointSaver::start where one is due
  void after_step(const RunPosition& position);

  /// Behind the last step: saves what is not saved yet, and waits for it.
  ///
  /// Throws CheckpointError where that failed; CommError
  void finish(const RunPosition& position);

 private:
  void save(const RunPosition& position, bool in_background);
  void wait_for_save();
  void report(const SaveResult& result);
  void report_failure(const std::string& error);
  [[nodiscard]] CheckpointSaver::Request request(
      const RunPosition& position) const;

  Run run_;
  std::filesystem::path folder_;  // of the checkpoints
  std::string model_config_;      // text of model.config
  std::unique_ptr<OptimizerStateAccess> optimizer_;
  CheckpointSaver saver_;
  std::int64_t saved_step_ = -1;  // of the newest that was saved or loaded
  std::int64_t saving_step_ = -1;
  std::string last_error_;  // of the newest save; empty: it is complete
};

}  // namespace accordion
