// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/data/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/fixtures.h"

namespace accordion {
namespace {

using ::testing::HasSubstr;
using testing::message_of;
using testing::TemporaryFolder;

TEST(MappedFile, HoldsTheBytesOfTheFile) {
  const TemporaryFolder folder;
  const auto file = MappedFile::open(folder.write("a.txt", "a\xff\n"));
  ASSERT_EQ(file.bytes().size(), 3U);
  EXPECT_EQ(file.bytes()[0], 'a');
  EXPECT_EQ(file.bytes()[1], 0xff);
  EXPECT_EQ(file.bytes()[2], '\n');
}

TEST(MappedFile, BytesStayWhereTheyAreWhenMoved) {
  const TemporaryFolder folder;
  auto first = MappedFile::open(folder.write("a.txt", "text"));
  const auto* const data = first.bytes().data();
  const MappedFile second = std::move(first);
  EXPECT_EQ(second.bytes().data(), data);
  EXPECT_EQ(second.bytes()[3], 't');
}

TEST(MappedFile, MissingFileIsAnErrorThatNamesIt) {
  const std::string message =
      message_of([] { MappedFile::open("/nowhere/text.txt"); });
  EXPECT_THAT(message, HasSubstr("'/nowhere/text.txt'"));
  EXPECT_THAT(message, HasSubstr("No such file"));
  EXPECT_THAT(message, HasSubstr("data.path"));
}

TEST(MappedFile, EmptyFileAndFolderAreErrors) {
  const TemporaryFolder folder;
  const auto empty = folder.write("empty.txt", "");
  EXPECT_THAT(message_of([&] { MappedFile::open(empty); }),
              HasSubstr("is empty"));
  EXPECT_THAT(message_of([&] { MappedFile::open(folder.path()); }),
              HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace accordion
