// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ctime>
#include <filesystem>
#include <string>
#include <string_view>

#include "accordion/checkpoint/checkpoint_folder.h"
#include "accordion/train/run_position.h"
#include "accordion/train/train_config.h"

namespace accordion {

/// Where a run begins.
struct RunStart {
  std::filesystem::path folder;      ///< of the run; exists
  std::filesystem::path checkpoint;  ///< to load; empty: begin at step 0
  RunPosition position;              ///< of the checkpoint
};

/// The folder of a run's checkpoints, as checkpoint.dir says.
std::filesystem::path checkpoints_folder(const TrainConfig& config,
                                         const std::filesystem::path& run);

/// Which of a run's checkpoints are kept.
KeepRule keep_rule(const TrainConfig& config);

/// Finds or makes the folder of a run, and the checkpoint it goes on from. To
/// be called on one rank.
///
/// `resume` empty: a new run. "auto": the run in run.dir goes on from its
/// newest complete checkpoint, or begins (again) where there is none. A path,
/// of a checkpoint or of a run: the run that owns it goes on, which must be in
/// run.dir where that is set; with another run.dir, a new run begins there.
///
/// Throws std::runtime_error, CheckpointError: run.dir is not set with "auto",
///        there is no checkpoint at the path, the run went on from there
///        already, a new run would save among the checkpoints of another, or
///        as create_run_folder
RunStart find_run_start(const TrainConfig& config, const std::string& resume,
                        std::time_t now);

/// As text for other ranks, and back.
std::string to_text(const RunStart& start);
RunStart parse_run_start(const std::string& text);

}  // namespace accordion
