// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/run_start.h"

#include <stdexcept>

#include <fmt/format.h>

#include "accordion/checkpoint/checkpoint_folder.h"
#include "accordion/checkpoint/durable_file.h"
#include "accordion/train/run_folder.h"

namespace accordion {
namespace {

namespace fs = std::filesystem;

/// What ranks are told besides the position, as values of an index.
constexpr const char* kFolder = "folder";
constexpr const char* kCheckpoint = "checkpoint";

bool is_run_folder(const fs::path& folder) {
  return fs::exists(config_file(folder));
}

/// A run that was killed before its folder held more than this.
bool is_hardly_begun(const fs::path& folder) {
  return fs::exists(unfinished_path(config_file(folder)));
}

bool same_folder(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return a == b || (fs::equivalent(a, b, error) && !error);
}

fs::path new_folder(const TrainConfig& config, std::time_t now) {
  const fs::path& checkpoints = config.checkpoint.dir;
  if (!checkpoints.empty() && !complete_checkpoints(checkpoints).empty()) {
    throw std::runtime_error(fmt::format(
        "[train] checkpoint.dir '{}' holds the checkpoints of another run. Go "
        "on from them with --resume auto, or choose another folder.",
        checkpoints.string()));
  }
  return create_run_folder(config.run.dir,
                           fs::path(config.model.config).stem().string(), now);
}

/// The folder of a run, which may have lost all but its checkpoints.
fs::path old_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw std::runtime_error(
        fmt::format("[train] The run folder '{}' cannot be made: {}. Check "
                    "run.dir.",
                    folder.string(), error.message()));
  }
  return folder;
}

RunStart resume_newest(const TrainConfig& config, std::time_t now) {
  if (config.run.dir.empty()) {
    throw std::runtime_error(
        "[train] --resume auto looks for checkpoints in run.dir, which is not "
        "set. Set run.dir, or name a run or checkpoint: --resume PATH.");
  }
  const fs::path folder = config.run.dir;
  const auto found = complete_checkpoints(checkpoints_folder(config, folder));
  if (!found.empty()) {
    return {.folder = old_folder(folder),
            .checkpoint = found.back().path,
            .position = read_run_position(found.back().path)};
  }
  // A run that ended before its first checkpoint begins again.
  const bool exists = is_run_folder(folder) || is_hardly_begun(folder);
  return {.folder = exists ? folder : new_folder(config, now),
          .checkpoint = {},
          .position = {}};
}

/// The run that a checkpoint in RUN/checkpoints belongs to, or whose
/// checkpoint.dir it lies in; empty where that is not known.
fs::path owner_of(const TrainConfig& config, const fs::path& checkpoint) {
  const fs::path folder = checkpoint.parent_path();
  if (!config.run.dir.empty() &&
      same_folder(checkpoints_folder(config, config.run.dir), folder)) {
    return config.run.dir;
  }
  const fs::path run = folder.parent_path();
  return is_run_folder(run) ? run : fs::path();
}

/// The checkpoint that a path means.
fs::path checkpoint_at(const TrainConfig& config, fs::path path) {
  path = fs::absolute(path).lexically_normal();
  if (!path.has_filename()) {  // "step-00000100/"
    path = path.parent_path();
  }
  if (!is_run_folder(path)) {
    return path;
  }
  const fs::path folder = checkpoints_folder(config, path);
  const auto found = complete_checkpoints(folder);
  if (found.empty()) {
    throw CheckpointError(fmt::format(
        "[train] There is no complete checkpoint in '{}'. Name a checkpoint, "
        "or use --resume auto to begin where there is none.",
        folder.string()));
  }
  return found.back().path;
}

RunStart resume_from(const TrainConfig& config, const fs::path& path,
                     std::time_t now) {
  const fs::path checkpoint = checkpoint_at(config, path);
  const RunPosition position = read_run_position(checkpoint);
  const fs::path owner = owner_of(config, checkpoint);
  if (owner.empty() ||
      (!config.run.dir.empty() && !same_folder(owner, config.run.dir))) {
    return {.folder = new_folder(config, now),
            .checkpoint = checkpoint,
            .position = position};
  }
  const auto found = complete_checkpoints(checkpoint.parent_path());
  if (!found.empty() && !same_folder(found.back().path, checkpoint)) {
    throw CheckpointError(fmt::format(
        "[train] '{}' went on from '{}': it has a checkpoint of step {}. "
        "Resume from that one, or begin a run of its own there: "
        "run.dir=NEW_FOLDER.",
        owner.string(), checkpoint.filename().string(), found.back().step));
  }
  return {.folder = old_folder(owner),
          .checkpoint = checkpoint,
          .position = position};
}

}  // namespace

fs::path checkpoints_folder(const TrainConfig& config, const fs::path& run) {
  return config.checkpoint.dir.empty() ? run / "checkpoints"
                                       : fs::path(config.checkpoint.dir);
}

KeepRule keep_rule(const TrainConfig& config) {
  return {.newest = config.checkpoint.keep,
          .every = config.checkpoint.keep_every};
}

RunStart find_run_start(const TrainConfig& config, const std::string& resume,
                        std::time_t now) {
  if (resume.empty()) {
    return {
        .folder = new_folder(config, now), .checkpoint = {}, .position = {}};
  }
  return resume == "auto" ? resume_newest(config, now)
                          : resume_from(config, resume, now);
}

std::string to_text(const RunStart& start) {
  CheckpointIndex index;
  index.values = {{kFolder, start.folder.string()},
                  {kCheckpoint, start.checkpoint.string()}};
  add_to(index.values, start.position);
  return to_text(index);
}

RunStart parse_run_start(const std::string& text) {
  const CheckpointIndex index = parse_checkpoint_index(text, "run start");
  const auto path = [&](const char* name) {
    return fs::path(std::get<std::string>(index.values.at(name)));
  };
  return {.folder = path(kFolder),
          .checkpoint = path(kCheckpoint),
          .position = run_position(index, "run start")};
}

}  // namespace accordion
