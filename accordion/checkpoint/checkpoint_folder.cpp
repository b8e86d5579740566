// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "accordion/checkpoint/durable_file.h"

namespace accordion {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepPrefix = "step-";
constexpr std::string_view kUnfinished = ".unfinished";
constexpr std::string_view kRemoved = ".removed";

[[noreturn]] void fail(const fs::path& path, std::string_view what) {
  throw CheckpointError(
      fmt::format("[checkpoint] '{}' {}.", path.string(), what));
}

fs::path with_ending(fs::path path, std::string_view ending) {
  path += ending;
  return path;
}

/// "a/" is the folder "a", and what is beside it is not in it.
fs::path without_slash(const fs::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

/// Makes a folder and those around it, their names on the disk.
void make_folder(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    return;
  }
  if (path.has_parent_path()) {
    make_folder(path.parent_path());
  }
  fs::create_directory(path, error);
  if (error) {
    fail(path, fmt::format("cannot be made: {}. Check the permissions of the "
                           "folder around it",
                           error.message()));
  }
  sync_folder(path.parent_path());
}

/// The index as text that a reader accepts: what it would refuse is found here,
/// not when the run is to be resumed.
std::string checked_text(const CheckpointIndex& index, const fs::path& path) {
  std::string text = to_text(index);
  try {
    (void)parse_checkpoint_index(text, path.string());
  } catch (const CheckpointError& error) {
    throw CheckpointError(
        fmt::format("[save_checkpoint] nothing was committed, as it could not "
                    "be read back: {}",
                    error.what()));
  }
  return text;
}

void remove_folder(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) {
    fail(path, fmt::format("cannot be removed: {}", error.message()));
  }
}

/// The step of a name that step_folder_name could have made.
std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) {
    return std::nullopt;
  }
  std::int64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto [parsed, error] =
      std::from_chars(name.data() + kStepPrefix.size(), end, step);
  if (error != std::errc() || parsed != end || step < 0 ||
      name != step_folder_name(step)) {
    return std::nullopt;
  }
  return step;
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    entries.push_back(entry->path());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    fail(folder, fmt::format("cannot be read: {}", error.message()));
  }
  return entries;
}

bool is_complete(const fs::path& checkpoint) {
  std::error_code error;
  const bool complete = fs::exists(index_file(checkpoint), error);
  if (error) {
    fail(checkpoint, fmt::format("cannot be read: {}", error.message()));
  }
  return complete;
}

/// Removes checkpoints whose names have this ending.
void remove_with_ending(const fs::path& folder, std::string_view ending) {
  for (const fs::path& entry : entries_of(folder)) {
    if (entry.extension() == ending && step_of(entry.stem().string())) {
      remove_folder(entry);
    }
  }
}

}  // namespace

fs::path index_file(const fs::path& checkpoint) {
  return checkpoint / "index.json";
}

std::string shard_file_name(int rank, int world_size) {
  return fmt::format("shard-{:05}-of-{:05}.safetensors", rank, world_size);
}

fs::path unfinished_folder(const fs::path& checkpoint) {
  return with_ending(without_slash(checkpoint), kUnfinished);
}

void begin_checkpoint(const fs::path& checkpoint) {
  if (fs::exists(fs::symlink_status(checkpoint))) {
    fail(checkpoint,
         "exists already, and a checkpoint is never overwritten. Choose "
         "another path, or remove it first");
  }
  const fs::path unfinished = unfinished_folder(checkpoint);
  if (unfinished.has_parent_path()) {
    make_folder(unfinished.parent_path());
  }
  remove_folder(unfinished);
  make_folder(unfinished);
}

void commit_checkpoint(const fs::path& checkpoint,
                       const CheckpointIndex& index) {
  const fs::path unfinished = unfinished_folder(checkpoint);
  const std::string text = checked_text(index, index_file(unfinished));
  DurableFile file(index_file(unfinished),
                   static_cast<std::int64_t>(text.size()));
  file.write(text);
  (void)file.finish();
  sync_folder(unfinished);
  try {
    rename_durably(unfinished, without_slash(checkpoint));
  } catch (const CheckpointError&) {
    std::error_code ignored;  // it may not have come as far as its name
    fs::rename(without_slash(checkpoint), unfinished, ignored);
    throw;
  }
}

void abandon_checkpoint(const fs::path& checkpoint) {
  std::error_code ignored;
  fs::remove_all(unfinished_folder(checkpoint), ignored);
}

std::string step_folder_name(std::int64_t step) {
  return fmt::format("{}{:08}", kStepPrefix, step);
}

std::vector<StepCheckpoint> complete_checkpoints(const fs::path& folder) {
  std::vector<StepCheckpoint> found;
  for (const fs::path& entry : entries_of(folder)) {
    const auto step = step_of(entry.filename().string());
    if (step && is_complete(entry)) {
      found.push_back({*step, entry});
    }
  }
  std::ranges::sort(found, {}, &StepCheckpoint::step);
  return found;
}

std::vector<StepCheckpoint> checkpoints_below(const fs::path& folder) {
  std::vector<StepCheckpoint> found =
      complete_checkpoints(folder / "checkpoints");
  return found.empty() ? complete_checkpoints(folder) : found;
}

void point_latest(const fs::path& folder, const std::string& name) {
  replace_file(folder / "latest", name + "\n");
}

void remove_old_checkpoints(const fs::path& folder, const KeepRule& rule) {
  remove_with_ending(folder, kRemoved);  // that a killed process began
  if (rule.newest == 0) {
    return;
  }
  std::vector<StepCheckpoint> found = complete_checkpoints(folder);
  const auto surplus = std::max<std::int64_t>(
      static_cast<std::int64_t>(found.size()) - rule.newest, 0);
  found.resize(static_cast<std::size_t>(surplus));
  for (const StepCheckpoint& old : found) {
    if (rule.every > 0 && old.step % rule.every == 0) {
      continue;
    }
    const fs::path removed = with_ending(old.path, kRemoved);
    rename_durably(old.path, removed);
    remove_folder(removed);
  }
}

void tidy_checkpoints(const fs::path& folder, const KeepRule& rule) {
  const std::vector<StepCheckpoint> found = complete_checkpoints(folder);
  try {
    remove_with_ending(folder, kUnfinished);
    if (!found.empty()) {
      point_latest(folder, found.back().path.filename().string());
    }
    remove_old_checkpoints(folder, rule);
  } catch (const CheckpointError&) {
    // Whoever saves there next tries the same, and says what is wrong.
  }
}

}  // namespace accordion
