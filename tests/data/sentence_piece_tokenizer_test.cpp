// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/data/sentence_piece_tokenizer.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/fixtures.h"
#include "tests/data/sentence_piece_model.h"

namespace accordion {
namespace {

using ::testing::HasSubstr;
using testing::message_of;
using testing::TemporaryFolder;
using testing::train_sentence_piece;

TEST(SentencePieceTokenizer, TextSurvivesTheRoundTripInFewerTokens) {
  const TemporaryFolder folder;
  const auto tokenizer =
      open_sentence_piece(train_sentence_piece(folder.path()));
  const std::string text = "a rank owns a piece of the gradient";
  const auto tokens = tokenizer->encode(text);
  EXPECT_LT(tokens.size(), text.size());
  EXPECT_LT(std::ranges::max(tokens), 100);
  EXPECT_EQ(tokenizer->decode(tokens), text);
}

TEST(SentencePieceTokenizer, KnowsItsVocabularyAndItsControlIds) {
  const TemporaryFolder folder;
  const auto tokenizer =
      open_tokenizer(train_sentence_piece(folder.path()).string());
  EXPECT_EQ(tokenizer->vocab_size(), 100);
  EXPECT_EQ(tokenizer->bos(), 1);
  EXPECT_EQ(tokenizer->eos(), 2);
  std::vector<std::int64_t> tokens = tokenizer->encode("a rank");
  tokens.insert(tokens.begin(), 1);
  tokens.push_back(2);
  EXPECT_EQ(tokenizer->decode(tokens), "a rank");
}

TEST(SentencePieceTokenizer, ModelWithoutControlIdsSaysSo) {
  const TemporaryFolder folder;
  const auto tokenizer = open_sentence_piece(
      train_sentence_piece(folder.path(), 90, "--bos_id=-1 --eos_id=-1"));
  EXPECT_FALSE(tokenizer->bos().has_value());
  EXPECT_FALSE(tokenizer->eos().has_value());
}

TEST(SentencePieceTokenizer, OtherModelsHaveOtherFingerprints) {
  const TemporaryFolder folder;
  const auto path = train_sentence_piece(folder.path(), 90);
  const auto one = open_sentence_piece(path);
  const auto other =
      open_sentence_piece(train_sentence_piece(folder.path(), 95));
  EXPECT_EQ(one->fingerprint(), open_sentence_piece(path)->fingerprint());
  EXPECT_NE(one->fingerprint(), other->fingerprint());
}

TEST(SentencePieceTokenizer, IdBeyondTheVocabularyIsAnError) {
  const TemporaryFolder folder;
  const auto tokenizer =
      open_sentence_piece(train_sentence_piece(folder.path(), 90));
  for (const std::int64_t id : {-1, 90}) {
    EXPECT_THAT(message_of([&] { tokenizer->decode({{id}}); }),
                HasSubstr("whose ids are from 0 to 89"));
  }
}

TEST(SentencePieceTokenizer, FileThatIsNoModelIsAnErrorThatNamesIt) {
  const TemporaryFolder folder;
  EXPECT_THAT(message_of([] { open_tokenizer("/nowhere/byte"); }),
              HasSubstr("'/nowhere/byte': No such file"));
  for (const char* content : {"no model", "\x0a\x02\x08\x01", "{}"}) {
    const auto path = folder.write("a.model", content);
    const std::string message = message_of([&] { open_sentence_piece(path); });
    EXPECT_THAT(message, HasSubstr("a.model' is no SentencePiece model"));
    EXPECT_THAT(message, HasSubstr("\"bytes\""));
  }
}

TEST(SentencePieceTokenizer, TraitsTellWhatOtherProgramsNeed) {
  const TemporaryFolder folder;
  const auto like_llama = [&](std::string_view flags) {
    return sentence_piece_traits(
               train_sentence_piece(folder.path(), 400, flags))
        .is_like_llama;
  };
  const std::string as_it_is =
      "--hard_vocab_limit=false --normalization_rule_name=identity "
      "--remove_extra_whitespaces=false ";
  EXPECT_TRUE(like_llama(as_it_is + "--byte_fallback=true"));
  EXPECT_FALSE(like_llama(as_it_is));
  EXPECT_FALSE(like_llama("--byte_fallback=true"));
  EXPECT_FALSE(
      like_llama(as_it_is + "--byte_fallback=true --model_type=unigram"));
  const auto traits = sentence_piece_traits(
      train_sentence_piece(folder.path(), 100, "--bos_id=-1 --eos_piece=[E]"));
  EXPECT_EQ(traits.specials, (std::map<std::string, std::string>{
                                 {"eos", "[E]"}, {"unk", "<unk>"}}));
}

TEST(SentencePieceTokenizer, CutModelIsAnError) {
  const TemporaryFolder folder;
  const std::string model =
      testing::read_file(train_sentence_piece(folder.path()));
  for (const std::size_t part : {2U, 3U, 7U}) {
    const auto cut =
        folder.write("cut.model", model.substr(0, model.size() / part));
    EXPECT_THAT(message_of([&] { open_sentence_piece(cut); }),
                HasSubstr("is no SentencePiece model"))
        << part;
  }
}

}  // namespace
}  // namespace accordion
