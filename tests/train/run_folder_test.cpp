// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/run_folder.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/fixtures.h"

namespace accordion {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::message_of;
using testing::read_file;
using testing::TemporaryFolder;

TEST(RunFolder, NamesItselfAfterTimeAndModelAndNeverTwice) {
  const TemporaryFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  const fs::path first = create_run_folder("", "tiny", 1000000000);
  const fs::path second = create_run_folder("", "tiny", 1000000000);
  fs::current_path(before);
  EXPECT_EQ(first.parent_path().filename(), "runs");
  EXPECT_THAT(first.filename().string(),
              ::testing::MatchesRegex("2001090[0-9]-[0-9]+-tiny"));
  EXPECT_EQ(second.string(), first.string() + "-2");
  EXPECT_TRUE(fs::is_directory(second));
}

TEST(RunFolder, NamedFolderIsMadeWithItsParents) {
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "a" / "b";
  EXPECT_EQ(create_run_folder(run, "tiny", 0), run);
  EXPECT_TRUE(fs::is_directory(run));
  EXPECT_EQ(create_run_folder(run, "tiny", 0), run) << "an empty folder";
}

TEST(RunFolder, FolderThatHoldsAnythingIsNeverTaken) {
  const TemporaryFolder folder;
  folder.write("metrics.jsonl", "{}");
  const std::string message =
      message_of([&] { create_run_folder(folder.path(), "tiny", 0); });
  EXPECT_THAT(message, HasSubstr(folder.path().string()));
  EXPECT_THAT(message, HasSubstr("never overwritten"));
  EXPECT_EQ(read_file(folder.path() / "metrics.jsonl"), "{}");
}

TEST(RunFolder, FolderThatCannotBeMadeIsAnError) {
  const TemporaryFolder folder;
  const auto file = folder.write("file", "x");
  EXPECT_THAT(message_of([&] { create_run_folder(file / "run", "tiny", 0); }),
              HasSubstr("cannot be made"));
}

TEST(RunLock, OneProcessTrainsARunAtATime) {
  const TemporaryFolder folder;
  {
    const RunLock lock(folder.path());
    const std::string message = message_of([&] { RunLock(folder.path()); });
    EXPECT_THAT(message, HasSubstr("is being trained by another process"));
    EXPECT_THAT(message, HasSubstr(folder.path().string()));
  }
  const RunLock again(folder.path());
  EXPECT_TRUE(fs::is_empty(folder.path())) << "a new run begins in it";
}

TEST(RankLog, LinesAreThereAtOnceWithTheirTime) {
  const TemporaryFolder folder;
  RankLog log(folder.path(), 3);
  log.line("started");
  EXPECT_THAT(read_file(folder.path() / "log-rank3.txt"),
              ::testing::MatchesRegex(" +0\\.[0-9]+ s  started\n"));
  EXPECT_THAT(message_of([] { RankLog("/nowhere", 0); }),
              HasSubstr("cannot be written"));
}

}  // namespace
}  // namespace accordion
