// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/run_start.h"

#include <algorithm>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "accordion/checkpoint/checkpoint_folder.h"
#include "accordion/checkpoint/durable_file.h"
#include "accordion/train/run_folder.h"
#include "tests/data/fixtures.h"

namespace accordion {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::message_of;
using testing::TemporaryFolder;

/// Of a run that has read 4 samples a step.
RunPosition after_steps(std::int64_t steps) {
  return {.step = steps,
          .samples = 4 * steps,
          .elapsed_seconds = 0.5 * static_cast<double>(steps),
          .skipped_steps = steps / 2,
          .guard = {.skipped = steps % 3,
                    .rollbacks = 1,
                    .mean_loss = 0.1 * static_cast<double>(steps),
                    .num_losses = steps},
          .scaler = GradScalerState{.scale = 1024,
                                    .finite_steps = steps,
                                    .skips_in_row = 1,
                                    .skipped_steps = 3}};
}

void write_checkpoint(const fs::path& path, const CheckpointValues& values) {
  begin_checkpoint(path);
  CheckpointIndex index;
  index.values = values;
  commit_checkpoint(path, index);
}

class RunStart : public ::testing::Test {
 protected:
  [[nodiscard]] fs::path path(const std::string& name) const {
    return folder_.path() / name;
  }

  /// Begins a run, as its ranks would.
  fs::path begin(const std::string& name) {
    config_.run.dir = path(name).string();
    const fs::path run = find_run_start(config_, "", 0).folder;
    replace_file(config_file(run), "");
    return run;
  }

  fs::path save(const fs::path& run, std::int64_t steps) {
    CheckpointValues values;
    add_to(values, after_steps(steps));
    const fs::path checkpoint =
        checkpoints_folder(config_, run) / step_folder_name(steps);
    write_checkpoint(checkpoint, values);
    return checkpoint;
  }

  accordion::RunStart start(const std::string& resume) {
    return find_run_start(config_, resume, 0);
  }

  void expect_begins_in(const fs::path& run, const std::string& resume) {
    const auto found = start(resume);
    EXPECT_EQ(found.folder, run);
    EXPECT_TRUE(fs::is_directory(run));
    EXPECT_EQ(found.checkpoint, "");
    EXPECT_EQ(found.position.step, 0);
  }

  void expect_goes_on(const fs::path& run, std::int64_t steps,
                      const std::string& resume) {
    const auto found = start(resume);
    EXPECT_TRUE(fs::equivalent(found.folder, run)) << found.folder;
    EXPECT_EQ(found.checkpoint.filename(), step_folder_name(steps));
    EXPECT_EQ(found.position.step, steps);
    EXPECT_EQ(found.position.samples, 4 * steps);
    EXPECT_EQ(found.position.guard.skipped, steps % 3);
  }

  TemporaryFolder folder_;
  TrainConfig config_;
};

TEST_F(RunStart, NewRunBeginsInAFolderOfItsOwn) {
  config_.run.dir = path("run");
  expect_begins_in(path("run"), "");
  save(begin("other"), 2);
  EXPECT_THAT(message_of([&] { start(""); }), HasSubstr("never overwritten"));
}

TEST_F(RunStart, AutoBeginsWhereThereIsNoRun) {
  config_.run.dir = path("run");
  expect_begins_in(path("run"), "auto");
}

TEST_F(RunStart, AutoNeedsAFolderThatIsTheSameEachTime) {
  EXPECT_THAT(message_of([&] { start("auto"); }), HasSubstr("Set run.dir"));
}

TEST_F(RunStart, AutoBeginsAgainWhereARunDiedBeforeItsFirstCheckpoint) {
  const fs::path run = begin("run");
  expect_begins_in(run, "auto");
  fs::create_directories(run / "checkpoints" / "step-00000002.unfinished");
  expect_begins_in(run, "auto");
}

TEST_F(RunStart, AutoBeginsAgainWhereARunDiedInItsFirstFile) {
  config_.run.dir = path("run");
  fs::create_directory(path("run"));
  folder_.write("run/config.toml.unfinished", "model.con");
  expect_begins_in(path("run"), "auto");
}

TEST_F(RunStart, AutoTakesNoFolderThatIsNoRun) {
  config_.run.dir = path("run");
  fs::create_directory(path("run"));
  folder_.write("run/thesis.tex", "");
  EXPECT_THAT(message_of([&] { start("auto"); }),
              HasSubstr("never overwritten"));
}

TEST_F(RunStart, AutoGoesOnFromTheNewestThatIsComplete) {
  const fs::path run = begin("run");
  save(run, 9);
  save(run, 100);
  save(run, 20);
  fs::create_directory(run / "checkpoints" / "step-00000300.unfinished");
  fs::create_directory(run / "checkpoints" / "step-00000200.removed");
  fs::create_directory(run / "checkpoints" / "step-00000400");  // no index
  expect_goes_on(run, 100, "auto");
}

TEST_F(RunStart, AutoGoesOnWhereOnlyCheckpointsSurvived) {
  config_.checkpoint.dir = path("elsewhere");
  const fs::path run = begin("run");
  save(run, 2);
  fs::remove_all(run);
  expect_goes_on(run, 2, "auto");
}

// It would throw away what was measured, and then the checkpoints.
TEST_F(RunStart, AutoDoesNotBeginAgainWhereCheckpointsCannotBeRead) {
  const fs::path run = begin("run");
  fs::create_symlink("checkpoints", run / "checkpoints");  // leads nowhere
  EXPECT_THAT(message_of([&] { start("auto"); }), HasSubstr("cannot be read"));
}

TEST_F(RunStart, PathOfACheckpointOrOfItsRunGoesOnInTheRun) {
  const fs::path run = begin("run");
  save(run, 2);
  const fs::path newest = save(run, 4);
  for (const char* dir : {"run", ""}) {
    config_.run.dir = *dir == '\0' ? "" : path(dir).string();
    expect_goes_on(run, 4, newest);
    expect_goes_on(run, 4, newest.string() + "/");
    expect_goes_on(run, 4, run);
    expect_goes_on(run, 4, run.string() + "/");
    expect_goes_on(run, 4, run.string() + "/checkpoints/../.");
  }
}

TEST_F(RunStart, RelativePathGoesOnInTheRun) {
  const fs::path run = begin("run");
  save(run, 4);
  const fs::path before = fs::current_path();
  fs::current_path(folder_.path());
  config_.run.dir = "run";
  expect_goes_on(run, 4, "run");
  expect_goes_on(run, 4, "run/checkpoints/step-00000004");
  expect_goes_on(run, 4, "auto");
  fs::current_path(before);
}

TEST_F(RunStart, PathOfACheckpointInCheckpointDirGoesOnInTheRun) {
  config_.checkpoint.dir = path("elsewhere");
  const fs::path run = begin("run");
  expect_goes_on(run, 6, save(run, 6));
  fs::remove_all(run);
  expect_goes_on(run, 6, path("elsewhere") / step_folder_name(6));
}

TEST_F(RunStart, AnotherRunFolderBranchesOff) {
  const fs::path run = begin("run");
  const fs::path old = save(run, 2);
  save(run, 4);
  config_.run.dir = path("branch");
  const auto branch = start(old);
  EXPECT_EQ(branch.folder, path("branch"));
  EXPECT_TRUE(fs::is_empty(branch.folder));
  EXPECT_EQ(branch.checkpoint, old);
  EXPECT_EQ(branch.position.step, 2);
}

TEST_F(RunStart, CheckpointThatItsRunWentOnFromIsAnError) {
  const fs::path run = begin("run");
  const fs::path old = save(run, 2);
  save(run, 4);
  const std::string message = message_of([&] { start(old); });
  EXPECT_THAT(message, HasSubstr("went on from 'step-00000002'"));
  EXPECT_THAT(message, HasSubstr("run.dir=NEW_FOLDER"));
}

TEST_F(RunStart, CheckpointUnderAnotherNameGoesOnInItsRun) {
  const fs::path run = begin("run");
  const fs::path kept = run / "checkpoints" / "best";
  fs::rename(save(run, 2), kept);
  EXPECT_EQ(start(kept).checkpoint, kept);
  EXPECT_EQ(start(kept).position.step, 2);
}

TEST_F(RunStart, RunOrPathWithoutACheckpointIsAnError) {
  const fs::path run = begin("run");
  EXPECT_THAT(message_of([&] { start(run); }),
              HasSubstr("There is no complete checkpoint in"));
  EXPECT_THAT(message_of([&] { start(path("nothing")); }),
              HasSubstr(path("nothing").string()));
}

TEST_F(RunStart, CheckpointThatNoTrainerSavedIsAnError) {
  write_checkpoint(path("weights"), {{"model/config.json", "{}"}});
  config_.run.dir = path("run");
  EXPECT_THAT(message_of([&] { start(path("weights")); }),
              HasSubstr("says nothing of how far a run has come"));
  EXPECT_FALSE(fs::exists(path("run")));
}

TEST_F(RunStart, NewRunDoesNotSaveAmongTheCheckpointsOfAnother) {
  config_.checkpoint.dir = path("elsewhere");
  save(begin("run"), 100);
  config_.run.dir = path("new");
  EXPECT_THAT(message_of([&] { start(""); }),
              HasSubstr("holds the checkpoints of another run"));
  EXPECT_FALSE(fs::exists(path("new")));
}

TEST_F(RunStart, TextKeepsIt) {
  const accordion::RunStart start = {.folder = "a \"folder\"",
                                     .checkpoint = "a/step-00000007",
                                     .position = {.step = 7,
                                                  .samples = 1 << 30,
                                                  .elapsed_seconds = 0.1,
                                                  .guard = {.skipped = 2,
                                                            .rollbacks = 3,
                                                            .mean_loss = 0.7,
                                                            .num_losses = 9},
                                                  .previous_norm = 2.5}};
  const accordion::RunStart same = parse_run_start(to_text(start));
  EXPECT_EQ(same.folder, start.folder);
  EXPECT_EQ(same.checkpoint, start.checkpoint);
  EXPECT_EQ(same.position.step, 7);
  EXPECT_EQ(same.position.samples, 1 << 30);
  EXPECT_EQ(same.position.elapsed_seconds, 0.1);
  EXPECT_EQ(same.position.guard.skipped, 2);
  EXPECT_EQ(same.position.guard.rollbacks, 3);
  EXPECT_EQ(same.position.guard.mean_loss, 0.7);
  EXPECT_EQ(same.position.guard.num_losses, 9);
  EXPECT_EQ(same.position.previous_norm, 2.5);
}

TEST(RunPosition, LossScaleIsThatOfARunInFp16) {
  CheckpointIndex index;
  add_to(index.values, after_steps(7));
  EXPECT_EQ(run_position(index, "here"), after_steps(7));
  RunPosition without = after_steps(7);
  without.scaler.reset();
  index.values.clear();
  add_to(index.values, without);
  EXPECT_EQ(run_position(index, "here"), without);
}

TEST(RunPosition, ValueThatIsMissingOrNegativeOrOfAnotherTypeIsAnError) {
  CheckpointIndex index;
  add_to(index.values, after_steps(7));
  EXPECT_EQ(run_position(index, "here").samples, 28);
  EXPECT_EQ(run_position(index, "here").elapsed_seconds, 3.5);
  for (const char* name :
       {"trainer/step", "trainer/samples", "trainer/elapsed_seconds",
        "trainer/skipped_steps", "trainer/skipped", "trainer/rollbacks",
        "trainer/mean_loss", "trainer/num_losses", "trainer/loss_scale_steps",
        "trainer/overflows", "trainer/all_overflows"}) {
    CheckpointIndex other = index;
    other.values.erase(name);
    const auto message = [&] {
      return message_of([&] { run_position(other, "here"); });
    };
    EXPECT_THAT(message(), HasSubstr(name));
    EXPECT_THAT(message(), HasSubstr("'here'"));
    other.values[name] = "7";
    EXPECT_THAT(message(), HasSubstr(name));
    const bool is_float = std::string(name).ends_with("seconds") ||
                          std::string(name).ends_with("mean_loss");
    other.values[name] =
        is_float ? CheckpointValue(-1.0) : CheckpointValue(-1L);
    EXPECT_THAT(message(), HasSubstr(name));
    other.values[name] = is_float ? CheckpointValue(1L) : CheckpointValue(1.0);
    EXPECT_THAT(message(), HasSubstr(name));
  }
}

}  // namespace
}  // namespace accordion
