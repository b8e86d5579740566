// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/data/token_file.h"

#include <cstdint>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/fixtures.h"
#include "tests/data/token_bytes.h"

namespace accordion {
namespace {

using ::testing::AllOf;
using testing::bytes_of;
using ::testing::HasSubstr;
using testing::llm_c_header;
using testing::message_of;
using testing::TemporaryFolder;

class TokenFileFormat : public ::testing::Test {
 protected:
  TokenFile inspect(const std::string& content,
                    TokenDtype dtype = TokenDtype::Auto) {
    return inspect_token_file(folder_.write("a.bin", content), dtype);
  }
  std::string error_of(const std::string& content,
                       TokenDtype dtype = TokenDtype::Auto) {
    return message_of([&] { inspect(content, dtype); });
  }

  TemporaryFolder folder_;
};

TEST_F(TokenFileFormat, HeaderOfLlmCTellsTypeAndCount) {
  const TokenFile gpt2 = inspect(llm_c_header(20240520, 1, 3) +
                                 bytes_of<std::uint16_t>({1, 2, 3}));
  EXPECT_EQ(gpt2.offset, 1024);
  EXPECT_EQ(gpt2.width, 2);
  EXPECT_EQ(gpt2.count, 3);
  const TokenFile llama3 = inspect(llm_c_header(20240801, 7, 2) +
                                   bytes_of<std::uint32_t>({1, 128000}));
  EXPECT_EQ(llama3.width, 4);
  EXPECT_EQ(llama3.count, 2);
}

TEST_F(TokenFileFormat, BareIdsNeedTheirType) {
  const std::string ids = bytes_of<std::uint16_t>({1, 2, 3, 4});
  EXPECT_EQ(inspect(ids, TokenDtype::Uint16).count, 4);
  EXPECT_EQ(inspect(ids, TokenDtype::Uint32).count, 2);
  EXPECT_EQ(inspect(ids, TokenDtype::Uint32).offset, 0);
  EXPECT_THAT(error_of(ids), AllOf(HasSubstr("a.bin' has no header"),
                                   HasSubstr("data.token_dtype")));
}

TEST_F(TokenFileFormat, TypeOtherThanTheHeadersIsAnError) {
  const std::string file =
      llm_c_header(20240520, 1, 1) + bytes_of<std::uint16_t>({1});
  EXPECT_EQ(inspect(file, TokenDtype::Uint16).count, 1);
  EXPECT_THAT(error_of(file, TokenDtype::Uint32),
              HasSubstr("holds uint16 by its header"));
}

TEST_F(TokenFileFormat, VersionThatIsNotKnownIsAnError) {
  EXPECT_THAT(error_of(llm_c_header(20240520, 2, 1) + "ab"),
              HasSubstr("magic 20240520 and version 2, but version 1"));
}

TEST_F(TokenFileFormat, SizeThatDoesNotFitTheHeaderIsAnError) {
  const std::string two = bytes_of<std::uint16_t>({1, 2});
  for (const std::int32_t count :
       {1, 3, 0, -1, std::numeric_limits<std::int32_t>::max(),
        std::numeric_limits<std::int32_t>::min()}) {
    EXPECT_THAT(error_of(llm_c_header(20240520, 1, count) + two),
                HasSubstr("It was cut or is no token file"))
        << count;
  }
  // The header itself is cut.
  EXPECT_THAT(error_of(llm_c_header(20240520, 1, 3).substr(0, 12)),
              HasSubstr("promises 3 tokens of 2 bytes"));
}

TEST_F(TokenFileFormat, SizeThatIsNoWholeNumberOfIdsIsAnError) {
  EXPECT_THAT(error_of("abc", TokenDtype::Uint16),
              HasSubstr("has 3 bytes, which is no whole number of uint16"));
  EXPECT_THAT(error_of("abcdef", TokenDtype::Uint32),
              HasSubstr("no whole number of uint32"));
}

TEST_F(TokenFileFormat, EmptyFileFolderAndMissingFileAreErrors) {
  EXPECT_THAT(error_of(""), HasSubstr("a.bin' is empty"));
  EXPECT_THAT(message_of([&] { inspect_text_file(folder_.path()); }),
              HasSubstr("is not a regular file"));
  EXPECT_THAT(message_of([] { inspect_text_file("/nowhere/a.txt"); }),
              HasSubstr("'/nowhere/a.txt' cannot be read: No such file"));
}

TEST_F(TokenFileFormat, TextIsOneTokenAByte) {
  const TokenFile text = inspect_text_file(folder_.write("a.txt", "abc"));
  EXPECT_EQ(text.width, 1);
  EXPECT_EQ(text.count, 3);
}

}  // namespace
}  // namespace accordion
