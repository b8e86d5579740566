// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/data/token_stream.h"

#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/fixtures.h"
#include "tests/data/token_bytes.h"

namespace accordion {
namespace {

using testing::bytes_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::TemporaryFolder;

std::vector<std::int64_t> read(const TokenStream& stream, std::int64_t begin,
                               std::size_t count) {
  std::vector<std::int64_t> tokens(count);
  stream.read(begin, tokens);
  return tokens;
}

/// Files of 3 tokens; token j of the stream is 1000 + j.
class ManyFiles : public ::testing::Test {
 protected:
  std::vector<TokenFile> files(std::uint16_t count) {
    std::vector<TokenFile> files;
    for (std::uint16_t i = 0; i < count; ++i) {
      const auto first = static_cast<std::uint16_t>(1000 + 3 * i);
      const auto path = folder_.write(
          fmt::format("{:03}.bin", i),
          bytes_of<std::uint16_t>({first, static_cast<std::uint16_t>(first + 1),
                                   static_cast<std::uint16_t>(first + 2)}));
      files.push_back(inspect_token_file(path, TokenDtype::Uint16));
    }
    return files;
  }

  TemporaryFolder folder_;
};

TEST_F(ManyFiles, LieEndToEnd) {
  const TokenStream stream(files(4), {.vocab_size = 5000});
  EXPECT_EQ(stream.size(), 12);
  EXPECT_THAT(read(stream, 0, 2), ElementsAre(1000, 1001));
  EXPECT_THAT(read(stream, 2, 8),
              ElementsAre(1002, 1003, 1004, 1005, 1006, 1007, 1008, 1009));
  EXPECT_THAT(read(stream, 3, 3), ElementsAre(1003, 1004, 1005));
  EXPECT_THAT(read(stream, 11, 1), ElementsAre(1011));
}

TEST_F(ManyFiles, AreMappedWhenReadAndOnlySoManyAtATime) {
  const TokenStream stream(files(100),
                           {.vocab_size = 5000, .max_open_files = 4});
  EXPECT_EQ(stream.num_open(), 0U);
  for (int i = 0; i < 300; ++i) {
    const std::int64_t at = i * 77 % 300;
    ASSERT_THAT(read(stream, at, 1), ElementsAre(1000 + at));
    ASSERT_LE(stream.num_open(), 4U);
  }
  EXPECT_EQ(read(stream, 0, 300).back(), 1299);
  EXPECT_EQ(stream.num_open(), 4U);
}

TEST_F(ManyFiles, TheOneNotReadForLongestIsUnmapped) {
  const TokenStream stream(files(3), {.vocab_size = 5000, .max_open_files = 2});
  read(stream, 0, 1);
  read(stream, 3, 1);
  read(stream, 0, 1);
  read(stream, 6, 1);  // in place of the second
  std::filesystem::remove(folder_.path() / "000.bin");
  EXPECT_THAT(read(stream, 0, 1), ElementsAre(1000));
  std::filesystem::remove(folder_.path() / "001.bin");
  EXPECT_THAT(message_of([&] { read(stream, 3, 1); }), HasSubstr("001.bin"));
}

TEST_F(ManyFiles, IdBeyondTheVocabularyNamesFileAndPlace) {
  const TokenStream stream(files(3), {.vocab_size = 1007});
  EXPECT_THAT(read(stream, 5, 2), ElementsAre(1005, 1006));
  const std::string message = message_of([&] { read(stream, 5, 3); });
  EXPECT_THAT(message, HasSubstr("002.bin' has id 1007 at token 1 (byte 2), "
                                 "but vocab_size is 1007"));
}

TEST_F(ManyFiles, FileThatChangesDuringTheRunIsAnError) {
  const TokenStream stream(files(2), {.vocab_size = 5000});
  folder_.write("001.bin", "ab");
  EXPECT_THAT(message_of([&] { read(stream, 2, 2); }),
              HasSubstr("001.bin' has 2 bytes, but had 6"));
}

TEST(TokenStream, ReadsIdsOfAllWidths) {
  const TemporaryFolder folder;
  const TokenFile bytes =
      inspect_text_file(folder.write("a.txt", std::string("\xff\x01", 2)));
  const TokenFile wide = inspect_token_file(
      folder.write("b.bin", bytes_of<std::uint32_t>({70000})),
      TokenDtype::Uint32);
  const TokenFile with_header = inspect_token_file(
      folder.write("c.bin", testing::llm_c_header(20240520, 1, 1) +
                                bytes_of<std::uint16_t>({65535})),
      TokenDtype::Auto);
  const TokenStream stream({bytes, wide, with_header}, {.vocab_size = 100000});
  EXPECT_THAT(read(stream, 0, 4), ElementsAre(255, 1, 70000, 65535));
  EXPECT_THAT(message_of([&] { TokenStream({bytes}, {.max_open_files = 0}); }),
              HasSubstr("max_open_files is 0"));
}

}  // namespace
}  // namespace accordion
