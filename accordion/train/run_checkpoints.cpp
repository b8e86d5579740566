// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/run_checkpoints.h"

#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "accordion/checkpoint/checkpoint_folder.h"
#include "accordion/checkpoint/load_checkpoint.h"
#include "accordion/models/llama_config.h"
#include "accordion/train/rank_agreement.h"
#include "accordion/train/run_start.h"

namespace accordion {
namespace {

/// How the run differs from the one that saved what was loaded, for a terminal;
/// "" where it does not.
std::string changes_since(const LoadResult& loaded, const std::string& saved,
                          const TrainConfig& now) {
  const std::string* const text = text_value(loaded.values, kConfigText);
  if (text == nullptr) {
    return {};
  }
  try {
    const auto changes = config_changes(parse_config(*text, kConfigText), now);
    return changes.empty() ? std::string()
                           : fmt::format("changed since {} was saved:\n  {}",
                                         saved, fmt::join(changes, "\n  "));
  } catch (const std::invalid_argument& error) {  // of another version
    return fmt::format("which keys changed since {} was saved is not known: {}",
                       saved, error.what());
  }
}

}  // namespace

RunCheckpoints::RunCheckpoints(Run run)
    : run_(std::move(run)),
      folder_(checkpoints_folder(run_.config, run_.folder)),
      model_config_(LlamaConfig::text_of(run_.config.model.config)),
      optimizer_(
          OptimizerStateTraits<AdamW>::access(run_.optimizer, run_.model)),
      saver_(run_.model, optimizer_.get()) {}

void RunCheckpoints::load(const std::filesystem::path& checkpoint,
                          std::int64_t step) {
  const LoadResult result =
      load_checkpoint(run_.model, optimizer_.get(), checkpoint, {});
  saved_step_ = step;
  run_.report.log(fmt::format(
      "loaded '{}': {:.1f} MiB read by this rank", checkpoint.string(),
      static_cast<double>(result.bytes_read) / (1 << 20)));
  if (const std::string changes =
          changes_since(result, checkpoint.filename().string(), run_.config);
      !changes.empty()) {
    run_.report.note(changes);
  }
}

std::filesystem::path RunCheckpoints::newest() {
  wait_for_save();
  return text_from_rank_0(
      world_communicator(run_.model),
      [this] {
        const auto found = complete_checkpoints(folder_);
        return found.empty() ? std::string() : found.back().path.string();
      },
      "newest checkpoint");
}

void RunCheckpoints::after_step(const RunPosition& position) {
  const std::int64_t every = run_.config.checkpoint.every;
  if (saver_.in_flight()) {
    if (const auto result = saver_.poll()) {
      report(*result);
    }
  }
  if (every > 0 && position.step % every == 0) {
    save(position, run_.config.checkpoint.async);
  }
}

void RunCheckpoints::finish(const RunPosition& position) {
  wait_for_save();
  if (run_.config.checkpoint.every > 0 && saved_step_ != position.step) {
    save(position, /*in_background=*/false);
  }
  if (!last_error_.empty()) {
    throw CheckpointError(last_error_);
  }
}

void RunCheckpoints::wait_for_save() {
  if (saver_.in_flight()) {
    report(saver_.finish());
  }
}

void RunCheckpoints::save(const RunPosition& position, bool in_background) {
  wait_for_save();
  saving_step_ = position.step;
  try {
    if (in_background) {
      saver_.start(request(position));
    } else {
      report(saver_.save(request(position)));
    }
  } catch (const CheckpointError& error) {
    report_failure(error.what());
  }
}

CheckpointSaver::Request RunCheckpoints::request(
    const RunPosition& position) const {
  const std::string name = step_folder_name(position.step);
  CheckpointSaver::Request request{.path = folder_ / name};
  add_to(request.values, position);
  request.values[kConfigText] = to_toml(run_.config);
  request.values[kModelConfigText] = model_config_;
  // A run that goes on from a checkpoint has what was measured before it.
  request.before_commit = [&report = run_.report] { report.sync(); };
  request.after_commit = [folder = folder_, name,
                          rule = keep_rule(run_.config)] {
    try {
      point_latest(folder, name);
    } catch (const CheckpointError&) {
      // On a full disk there is room once old ones are gone.
      remove_old_checkpoints(folder, rule);
      point_latest(folder, name);
    }
    remove_old_checkpoints(folder, rule);
  };
  return request;
}

void RunCheckpoints::report(const SaveResult& result) {
  if (!result.error.empty()) {
    return report_failure(result.error);
  }
  saved_step_ = saving_step_;
  last_error_.clear();
  const std::string line = fmt::format(
      "checkpoint {}: {:.1f} MiB of this rank, {:.3f} s waited, {:.3f} s in "
      "the background",
      result.path.filename().string(),
      static_cast<double>(result.bytes) / (1 << 20), result.blocked_seconds,
      result.background_seconds);
  run_.report.log(line);
  run_.report.note(line);
  if (!result.after_commit_error.empty()) {
    run_.report.log(result.after_commit_error);
    run_.report.note(result.after_commit_error +
                     "\nThe checkpoint is complete all the same.");
  }
}

void RunCheckpoints::report_failure(const std::string& error) {
  last_error_ = error;
  run_.report.log(error);
  run_.report.note(error +
                   "\nTraining goes on; the checkpoints before it are "
                   "as they were.");
}

}  // namespace accordion
