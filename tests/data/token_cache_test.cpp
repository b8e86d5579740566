// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/data/token_cache.h"

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "accordion/data/token_stream.h"
#include "tests/data/fixtures.h"
#include "tests/data/sentence_piece_model.h"

namespace accordion {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::TemporaryFolder;

class TokenCache : public ::testing::Test {
 protected:
  TokenCache()
      : tokenizer_(open_tokenizer(
            testing::train_sentence_piece(folder_.path()).string())) {}

  TokenFile open(const std::string& separator = "") {
    return cached_tokens(
        folder_.path() / "a.txt", *tokenizer_,
        {.folder = folder_.path() / "cache", .document_separator = separator});
  }

  std::vector<std::int64_t> tokens(const std::string& separator = "") {
    const TokenStream stream({open(separator)}, {.vocab_size = 100});
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(stream.size()));
    stream.read(0, tokens);
    return tokens;
  }

  std::vector<std::int64_t> document(const std::string& text) {
    std::vector<std::int64_t> tokens = tokenizer_->encode(text);
    tokens.insert(tokens.begin(), *tokenizer_->bos());
    tokens.push_back(*tokenizer_->eos());
    return tokens;
  }

  std::size_t num_caches() {
    const fs::directory_iterator files(folder_.path() / "cache");
    return static_cast<std::size_t>(std::distance(files, {}));
  }

  TemporaryFolder folder_;
  std::unique_ptr<const Tokenizer> tokenizer_;
};

TEST_F(TokenCache, HoldsEachDocumentBetweenBeginAndEnd) {
  folder_.write("a.txt", "a rank##a piece of it####");
  std::vector<std::int64_t> expected = document("a rank");
  const auto second = document("a piece of it");
  expected.insert(expected.end(), second.begin(), second.end());
  EXPECT_EQ(tokens("##"), expected);
  EXPECT_EQ(tokens(), document("a rank##a piece of it####"));
}

TEST_F(TokenCache, IsMadeOnce) {
  folder_.write("a.txt", "a rank");
  const fs::path cache = open().path;
  const auto time = fs::file_time_type::clock::now() - std::chrono::hours(1);
  fs::last_write_time(cache, time);
  EXPECT_EQ(open().path, cache);
  EXPECT_EQ(fs::last_write_time(cache), time);
}

TEST_F(TokenCache, IsMadeAnewWhereTheTextChanged) {
  const fs::path text = folder_.write("a.txt", "a rank");
  tokens();
  folder_.write("a.txt", "a piece");  // another size
  EXPECT_EQ(tokens(), document("a piece"));
  folder_.write("a.txt", "a shard");  // the same size, another time
  fs::last_write_time(
      text, fs::file_time_type::clock::now() + std::chrono::seconds(5));
  EXPECT_EQ(tokens(), document("a shard"));
  EXPECT_EQ(num_caches(), 1U);
}

TEST_F(TokenCache, IsMadeAnewWhereItIsDamaged) {
  folder_.write("a.txt", "a rank");
  const fs::path cache = open().path;
  fs::resize_file(cache, fs::file_size(cache) - 1);
  EXPECT_EQ(tokens(), document("a rank"));
}

TEST_F(TokenCache, IsAnotherForAnotherTokenizerOrSeparator) {
  folder_.write("a.txt", "a rank");
  open();
  open("##");
  tokenizer_ = open_tokenizer(
      testing::train_sentence_piece(folder_.path(), 90).string());
  open();
  EXPECT_EQ(num_caches(), 3U);
}

TEST_F(TokenCache, TextOfNothingButSeparatorsIsAnError) {
  folder_.write("a.txt", "####");
  EXPECT_THAT(message_of([&] { open("##"); }),
              HasSubstr("a.txt' gives no token"));
}

TEST_F(TokenCache, StopsWhenAsked) {
  folder_.write("a.txt", "a rank");
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THAT(message_of([&] {
                cached_tokens(folder_.path() / "a.txt", *tokenizer_,
                              {.folder = folder_.path() / "cache",
                               .document_separator = ""},
                              stop.get_token());
              }),
              HasSubstr("was interrupted"));
  EXPECT_EQ(num_caches(), 0U);
}

// Longer than what is encoded at once, in lines: as if encoded line by line.
TEST_F(TokenCache, LongDocumentIsEncodedInPartsThatLoseNothing) {
  std::string text;
  while (text.size() < 600 * 1024) {
    text += testing::sentences();
  }
  folder_.write("a.txt", text);
  const auto got = tokens();
  const auto whole = document(text);
  // Each cut may cost a token where the next part begins.
  EXPECT_LE(got.size(), whole.size() + 3);
  EXPECT_GE(got.size(), whole.size());
  EXPECT_EQ(tokenizer_->decode(std::span(got).first(1000)),
            tokenizer_->decode(std::span(whole).first(1000)));
}

TEST(FirstPart, EndsBehindALineOrBetweenCharacters) {
  EXPECT_EQ(first_part("short", 10), 5U);
  EXPECT_EQ(first_part("ab\ncd\nef", 7), 6U);
  EXPECT_EQ(first_part("abcdef", 4), 4U);
  EXPECT_EQ(first_part("abc\xc3\xa4"
                       "def",
                       4),
            3U);  // ä
  EXPECT_EQ(first_part("a\xf0\x9f\x98\x80"
                       "bcd",
                       4),
            1U);                                                 // four bytes
  EXPECT_EQ(first_part("\x80\x80\x80\x80\x80\x80\x80", 5), 1U);  // no UTF-8
}

TEST(TakeDocument, CutsAtEachSeparator) {
  std::string_view rest = "a--b----c";
  std::vector<std::string> documents;
  while (!rest.empty()) {
    documents.emplace_back(take_document(rest, "--"));
  }
  EXPECT_THAT(documents, ElementsAre("a", "b", "", "c"));
  rest = "a--b";
  EXPECT_EQ(take_document(rest, ""), "a--b");
  EXPECT_TRUE(rest.empty());
}

}  // namespace
}  // namespace accordion
