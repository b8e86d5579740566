// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/data/byte_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/fixtures.h"

namespace accordion {
namespace {

TEST(ByteTokenizer, EveryByteSurvivesTheRoundTrip) {
  std::string text;
  for (int byte = 0; byte < 256; ++byte) {
    text.push_back(static_cast<char>(byte));
  }
  const auto tokens = ByteTokenizer().encode(text);
  ASSERT_EQ(tokens.size(), 256U);
  EXPECT_EQ(tokens[200], 200);
  EXPECT_EQ(ByteTokenizer().decode(tokens), text);
}

TEST(ByteTokenizer, TokenBeyondTheVocabularyIsAnError) {
  const std::vector<std::int64_t> tokens = {65, 256};
  EXPECT_THAT(testing::message_of([&] { ByteTokenizer().decode(tokens); }),
              ::testing::HasSubstr("Token 256 is no byte"));
}

}  // namespace
}  // namespace accordion
