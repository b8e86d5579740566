// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/data/data_files.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/fixtures.h"

namespace accordion {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::TemporaryFolder;

class DataFiles : public ::testing::Test {
 protected:
  DataFiles() {
    fs::create_directories(folder_.path() / "more" / ".hidden");
    for (const char* name : {"b.txt", "B.txt", "a10.txt", "a9.txt", "notes.md",
                             ".c.txt", "more/z.bin", "more/.hidden/d.txt"}) {
      folder_.write(name, "text");
    }
  }

  [[nodiscard]] std::string path(const std::string& name) const {
    return (folder_.path() / name).string();
  }

  /// Paths below the folder.
  std::vector<std::string> find(const std::vector<std::string>& entries) const {
    std::vector<std::string> names;
    for (const fs::path& file : find_data_files(entries)) {
      names.push_back(file.lexically_relative(folder_.path()).string());
    }
    return names;
  }

  TemporaryFolder folder_;
};

TEST_F(DataFiles, FolderGivesItsTextsAndTokensSortedByBytes) {
  EXPECT_THAT(find({folder_.path().string()}),
              ElementsAre("B.txt", "a10.txt", "a9.txt", "b.txt", "more/z.bin"));
}

TEST_F(DataFiles, GlobGivesAnyFileThatFits) {
  EXPECT_THAT(find({path("a*")}), ElementsAre("a10.txt", "a9.txt"));
  EXPECT_THAT(find({path("[bB].txt")}), ElementsAre("B.txt", "b.txt"));
  EXPECT_THAT(find({path("*.md")}), ElementsAre("notes.md"));
}

TEST_F(DataFiles, ListKeepsItsOrder) {
  EXPECT_THAT(find({path("notes.md"), path("more"), path("a*")}),
              ElementsAre("notes.md", "more/z.bin", "a10.txt", "a9.txt"));
}

TEST_F(DataFiles, NameWithAsteriskIsAFileFirst) {
  folder_.write("b*", "text");
  EXPECT_THAT(find({path("b*")}), ElementsAre("b*"));
}

TEST_F(DataFiles, WhatFindsNothingIsAnErrorThatNamesIt) {
  EXPECT_THAT(message_of([&] { find({path("no.txt")}); }),
              HasSubstr("no.txt', which is no file, no folder, and a glob that "
                        "finds no file"));
  fs::create_directory(folder_.path() / "empty");
  EXPECT_THAT(message_of([&] { find({path("empty")}); }),
              HasSubstr("without a .txt or .bin file"));
}

TEST_F(DataFiles, FileFoundTwiceIsAnError) {
  const std::string message = message_of([&] {
    find({path("b.txt"), path("more/../b.*")});
  });
  EXPECT_THAT(message, HasSubstr("b.txt' once more"));
  EXPECT_THAT(message, HasSubstr("Name each file once"));
}

}  // namespace
}  // namespace accordion
