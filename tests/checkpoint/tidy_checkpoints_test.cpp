// SPDX-License-Identifier: BSD-3-Clause
//
// What a process that was killed leaves in the folder of a run's checkpoints.
#include <filesystem>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "accordion/checkpoint/checkpoint_folder.h"
#include "tests/data/fixtures.h"

namespace accordion {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::read_file;
using testing::TemporaryFolder;

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

void save(const fs::path& folder, std::int64_t step) {
  const fs::path checkpoint = folder / step_folder_name(step);
  begin_checkpoint(checkpoint);
  commit_checkpoint(checkpoint, {});
}

TEST(TidyCheckpoints, EndsWhatAKilledProcessBegan) {
  const TemporaryFolder folder;
  for (const std::int64_t step : {2, 4, 6}) {
    save(folder.path(), step);
  }
  point_latest(folder.path(), step_folder_name(4));
  fs::create_directories(folder.path() / "step-00000008.unfinished" / "x");
  fs::create_directories(folder.path() / "step-00000001.removed" / "x");
  folder.write("latest.unfinished", "step-");
  tidy_checkpoints(folder.path(), {.newest = 2});
  EXPECT_THAT(names_in(folder.path()),
              ElementsAre("latest", "step-00000004", "step-00000006"));
  EXPECT_EQ(read_file(folder.path() / "latest"), "step-00000006\n");
}

TEST(TidyCheckpoints, LeavesWhatIsNotOfACheckpoint) {
  const TemporaryFolder folder;
  folder.write("thesis.unfinished", "");
  fs::create_directory(folder.path() / "photos.removed");
  fs::create_directory(folder.path() / "step-1a.removed");
  tidy_checkpoints(folder.path(), {});
  EXPECT_THAT(
      names_in(folder.path()),
      ElementsAre("photos.removed", "step-1a.removed", "thesis.unfinished"));
}

TEST(TidyCheckpoints, NoFolderIsNothingToTidy) {
  const TemporaryFolder folder;
  tidy_checkpoints(folder.path() / "none", {});
  EXPECT_THAT(names_in(folder.path()), ElementsAre());
}

TEST(TidyCheckpoints, WhatCannotBeDoneIsLeft) {
  const TemporaryFolder folder;
  save(folder.path(), 2);
  fs::create_directories(folder.path() / "latest" / "x");
  tidy_checkpoints(folder.path(), {});
  EXPECT_EQ(complete_checkpoints(folder.path()).size(), 1U);
}

TEST(CompleteCheckpoints, FolderThatCannotBeReadIsAnError) {
  const TemporaryFolder folder;
  const auto file = folder.write("file", "");
  EXPECT_THAT(message_of([&] { complete_checkpoints(file); }),
              HasSubstr("cannot be read"));
}

}  // namespace
}  // namespace accordion
