// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/data/cache_file.h"

#include <cstdint>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/fixtures.h"
#include "tests/data/token_bytes.h"

namespace accordion {
namespace {

namespace fs = std::filesystem;
using testing::bytes_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::read_file;
using testing::TemporaryFolder;

std::size_t files_in(const fs::path& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

void write(const fs::path& path, int width, std::uint64_t fingerprint,
           const std::vector<std::uint64_t>& numbers) {
  CacheWriter writer(path, width, fingerprint);
  for (const std::uint64_t number : numbers) {
    writer.append(number);
  }
  writer.commit();
}

// docs/data.md, byte by byte.
TEST(CacheFile, HasTheBytesThatTheFormatSays) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a.tokens";
  write(path, 2, 0x1122334455667788, {1, 65535});
  EXPECT_EQ(read_file(path),
            std::string("accdata\0", 8) + bytes_of<std::uint32_t>({1, 2}) +
                bytes_of<std::uint64_t>({2, 0x1122334455667788}) +
                bytes_of<std::uint16_t>({1, 65535}));
  const auto header = read_cache_header(path);
  ASSERT_TRUE(header.has_value());
  EXPECT_EQ(header->width, 2);
  EXPECT_EQ(header->count, 2);
  EXPECT_EQ(header->fingerprint, 0x1122334455667788);
}

TEST(CacheFile, AppearsWholeOrNotAtAll) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "new" / "a.positions";
  {
    CacheWriter writer(path, 8, 1);
    writer.append(5);
    EXPECT_FALSE(fs::exists(path));
  }
  EXPECT_EQ(files_in(folder.path() / "new"), 0U);
  write(path, 8, 1, {5});
  write(path, 8, 2, {6, 7});
  EXPECT_THAT(PositionTable::open(path).values(), ElementsAre(6, 7));
  EXPECT_EQ(files_in(folder.path() / "new"), 1U);
}

TEST(CacheFile, DamagedHeaderIsNoHeader) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a.tokens";
  write(path, 4, 1, {1, 2, 3});
  const std::string good = read_file(path);
  const auto readable = [&](const std::string& content) {
    folder.write("a.tokens", content);
    return read_cache_header(path).has_value();
  };
  EXPECT_TRUE(readable(good));
  EXPECT_FALSE(readable(""));
  EXPECT_FALSE(readable(good.substr(0, 31)));
  EXPECT_FALSE(readable(good.substr(0, good.size() - 1)));
  EXPECT_FALSE(readable(good + "abcd"));
  for (const std::size_t byte : {0U, 8U, 12U, 16U, 23U}) {  // magic … count
    std::string bad = good;
    bad[byte] = '\x7f';
    EXPECT_FALSE(readable(bad)) << "byte " << byte;
  }
  EXPECT_FALSE(read_cache_header(folder.path() / "none").has_value());
}

TEST(CacheFile, TableOfOtherWidthIsAnError) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a.positions";
  write(path, 4, 1, {1, 2});
  EXPECT_THAT(message_of([&] { PositionTable::open(path); }),
              HasSubstr("a.positions' is no table of positions"));
}

TEST(CacheFile, FolderThatCannotBeMadeIsAnErrorWithAdvice) {
  const TemporaryFolder folder;
  const fs::path file = folder.write("file", "");
  const std::string message =
      message_of([&] { CacheWriter(file / "cache" / "a.tokens", 2, 1); });
  EXPECT_THAT(message, HasSubstr("a.tokens': Not a directory"));
  EXPECT_THAT(message, HasSubstr("data.cache_dir"));
}

TEST(CacheFile, FolderThatTakesNoFilesIsAnErrorWithAdvice) {
  EXPECT_THAT(message_of([] { CacheWriter("/proc/a.tokens", 2, 1); }),
              HasSubstr("Cannot write the cache file '/proc/a.tokens'"));
}

}  // namespace
}  // namespace accordion
