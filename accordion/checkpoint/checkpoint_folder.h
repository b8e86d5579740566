// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "accordion/checkpoint/checkpoint_index.h"

// How a checkpoint comes to be: its files are written to NAME.unfinished, which
// is renamed to NAME when they all are on the disk. So a folder of a name
// without that ending is complete, whatever died when.
namespace accordion {

/// Files of a checkpoint's folder.
std::filesystem::path index_file(const std::filesystem::path& checkpoint);
std::string shard_file_name(int rank, int world_size);

/// Where a checkpoint is written until it is complete.
std::filesystem::path unfinished_folder(
    const std::filesystem::path& checkpoint);

/// Makes the unfinished folder, and those around it. What an earlier attempt
/// left there is removed.
///
/// Throws CheckpointError when the checkpoint exists already
void begin_checkpoint(const std::filesystem::path& checkpoint);

/// Writes the index and gives the folder its name. When this returns, the
/// checkpoint survives a power failure; when it throws, there is none.
///
/// Requires  the files of the index are in the unfinished folder, on the disk
/// Throws    CheckpointError
void commit_checkpoint(const std::filesystem::path& checkpoint,
                       const CheckpointIndex& index);

/// Removes what there is of a checkpoint that will not be completed. What
/// cannot be removed stays, to be removed by the next begin_checkpoint.
void abandon_checkpoint(const std::filesystem::path& checkpoint);

// ---- The checkpoints of a run: step-<8 digits> in one folder, and `latest`,
// ---- a file that names the newest, for people and scripts

std::string step_folder_name(std::int64_t step);

/// A complete checkpoint of a run.
struct StepCheckpoint {
  std::int64_t step = 0;  ///< steps that were done
  std::filesystem::path path;
};

/// The complete ones, oldest first; none where there is no such folder.
///
/// Throws CheckpointError where it cannot be read: nobody is to begin again
///        because a disk is away
std::vector<StepCheckpoint> complete_checkpoints(
    const std::filesystem::path& folder);

/// Those of a run folder, in its checkpoints, or else of a folder of
/// checkpoints.
std::vector<StepCheckpoint> checkpoints_below(
    const std::filesystem::path& folder);

/// Points `latest` at a checkpoint in `folder`. Throws CheckpointError.
void point_latest(const std::filesystem::path& folder, const std::string& name);

struct KeepRule {
  std::int64_t newest = 2;  ///< so many of the newest are kept; 0: all
  std::int64_t every = 0;   ///< and those of steps it divides; 0: no others
};

/// Removes checkpoints that the rule does not keep. A folder is renamed before
/// it is emptied, so none ever looks complete that is not.
///
/// Throws CheckpointError
void remove_old_checkpoints(const std::filesystem::path& folder,
                            const KeepRule& rule);

/// Ends what a process that was killed began: removes checkpoints that were not
/// completed, points `latest` at the newest one, and removes old ones. What
/// cannot be done is left as it is: no checkpoint depends on it.
///
/// Requires  no other process saves there
/// Throws    CheckpointError where the folder cannot be read
void tidy_checkpoints(const std::filesystem::path& folder,
                      const KeepRule& rule);

}  // namespace accordion
