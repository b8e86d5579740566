// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/checkpoint_saver.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <thread>
#include <utility>

#include "accordion/checkpoint/checkpoint_folder.h"
#include "accordion/checkpoint/rank_outcomes.h"
#include "accordion/checkpoint/save_checkpoint.h"
#include "accordion/checkpoint/snapshot.h"
#include "accordion/comm/gather_values.h"

namespace accordion {

using detail::Outcome;
using detail::outcome_of;

namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kLabel = "checkpoint is written";
constexpr auto kPollInterval = std::chrono::milliseconds(500);

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

struct CheckpointSaver::Save {
  enum class Phase { Writing, Committing };

  Request request;
  detail::Snapshot snapshot;
  Communicator& world;
  Phase phase = Phase::Writing;
  SaveResult result = {};
  Clock::time_point background_start = {};

  std::future<Outcome> outcome = {};  // of this rank's thread
  std::jthread thread = {};

  template <class Work>
  void run_in_background(Work work) {
    std::promise<Outcome> promise;
    outcome = promise.get_future();
    background_start = Clock::now();
    thread = std::jthread(
        [work = std::move(work), promise = std::move(promise)]() mutable {
          promise.set_value(outcome_of(work));
        });
  }
  /// Whether this rank's thread is done, waiting for it as long as that.
  bool done_within(Clock::duration time) const {
    return outcome.wait_for(time) == std::future_status::ready;
  }
};

CheckpointSaver::CheckpointSaver(torch::nn::Module& root,
                                 OptimizerStateAccess* optimizer)
    : root_(root), optimizer_(optimizer) {}

CheckpointSaver::~CheckpointSaver() = default;

void CheckpointSaver::begin(Request request, bool copy) {
  const auto start = Clock::now();
  Communicator& world = world_communicator(root_);
  Outcome outcome = outcome_of([&] {
    if (world.rank() == 0) {
      begin_checkpoint(request.path);
    }
    return std::string();
  });
  std::unique_ptr<Save> save;
  if (!outcome.failed) {
    outcome = outcome_of([&] {
      save.reset(new Save{.request = {},
                          .snapshot = detail::take_snapshot(root_, optimizer_),
                          .world = world});
      if (copy) {
        stage(save->snapshot, staging_);
      }
      return std::string();
    });
  }
  const std::string failures = detail::describe_failures(
      "save_checkpoint", request.path, detail::gather_outcomes(world, outcome));
  if (!failures.empty()) {
    if (world.rank() == 0 && !outcome.failed) {
      abandon_checkpoint(request.path);
    }
    throw CheckpointError(failures);
  }
  save_ = std::move(save);
  save_->request = std::move(request);
  save_->result.path = save_->request.path;
  save_->run_in_background([save = save_.get()] {
    const int rank = save->world.rank();
    return to_text(write_shard(unfinished_folder(save->request.path),
                               shard_file_name(rank, save->world.world_size()),
                               save->snapshot.ranges));
  });
  save_->result.bytes = save_->snapshot.bytes();
  save_->result.blocked_seconds = seconds_since(start);
}

void CheckpointSaver::start(Request request) {
  begin(std::move(request), /*copy=*/true);
}

SaveResult CheckpointSaver::save(Request request) {
  begin(std::move(request), /*copy=*/false);
  return finish();
}

/// What rank 0's thread does when every rank has written its file.
void CheckpointSaver::commit_on_rank_0(std::vector<std::string> reports) {
  save_->run_in_background([save = save_.get(), reports = std::move(reports)] {
    CheckpointIndex index;
    index.world_size = save->world.world_size();
    index.values = save->snapshot.values;
    for (const auto& [name, value] : save->request.values) {
      index.values.insert_or_assign(name, value);
    }
    index.aliases.insert(save->snapshot.aliases.begin(),
                         save->snapshot.aliases.end());
    std::vector<ShardReport> shards;
    for (const std::string& report : reports) {
      shards.push_back(parse_shard_report(report));
    }
    add_shards(index, shards);
    if (save->request.before_commit) {
      save->request.before_commit();
    }
    commit_checkpoint(save->request.path, index);
    return outcome_of([save] {
             if (save->request.after_commit) {
               save->request.after_commit();
             }
             return std::string();
           })
        .text;
  });
}

/// All threads are done with this part: the next, or the end.
std::optional<SaveResult> CheckpointSaver::advance() {
  save_->result.background_seconds += seconds_since(save_->background_start);
  const std::vector<Outcome> outcomes =
      detail::gather_outcomes(save_->world, save_->outcome.get());
  std::string failures = detail::describe_failures(
      "save_checkpoint", save_->request.path, outcomes);
  if (!failures.empty() || save_->phase == Save::Phase::Committing) {
    if (failures.empty()) {
      save_->result.after_commit_error = outcomes.front().text;
    }
    return end(std::move(failures));
  }
  save_->phase = Save::Phase::Committing;
  if (save_->world.rank() == 0) {
    std::vector<std::string> reports;
    for (const Outcome& outcome : outcomes) {
      reports.push_back(outcome.text);
    }
    commit_on_rank_0(std::move(reports));
  } else {
    save_->run_in_background([] { return std::string(); });
  }
  return std::nullopt;
}

SaveResult CheckpointSaver::end(std::string error) {
  if (!error.empty() && save_->world.rank() == 0) {
    abandon_checkpoint(save_->request.path);
  }
  SaveResult result = std::move(save_->result);
  result.error = std::move(error);
  save_.reset();
  return result;
}

std::optional<SaveResult> CheckpointSaver::poll() {
  const auto start = Clock::now();
  const auto done = gather_values(
      save_->world,
      static_cast<std::int32_t>(save_->done_within(Clock::duration(0))),
      kLabel);
  std::optional<SaveResult> result;
  if (std::ranges::find(done, 0) == done.end()) {
    result = advance();
  }
  double& blocked =
      result ? result->blocked_seconds : save_->result.blocked_seconds;
  blocked += seconds_since(start);
  return result;
}

SaveResult CheckpointSaver::finish() {
  for (;;) {
    // Ranks whose disks are faster wait in the collective of poll(), so that
    // it is called often enough for none to think that another is lost.
    (void)save_->done_within(kPollInterval);
    if (auto result = poll()) {
      return std::move(*result);
    }
  }
}

void save_checkpoint(torch::nn::Module& root, OptimizerStateAccess* optimizer,
                     const std::filesystem::path& path,
                     const CheckpointValues& values) {
  CheckpointSaver saver(root, optimizer);
  const SaveResult result = saver.save({.path = path, .values = values});
  if (!result.error.empty()) {
    throw CheckpointError(result.error);
  }
}

}  // namespace accordion
