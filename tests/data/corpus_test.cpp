// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/data/corpus.h"

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "accordion/data/batch_sampler.h"
#include "accordion/data/byte_tokenizer.h"
#include "tests/data/fixtures.h"
#include "tests/data/sentence_piece_model.h"
#include "tests/data/token_bytes.h"

namespace accordion {
namespace {

namespace fs = std::filesystem;
using testing::bytes_of;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::message_of;
using testing::TemporaryFolder;

class CorpusOf : public ::testing::Test {
 protected:
  CorpusOf() {
    options_.seq_len = 4;
    options_.cache_folder = folder_.path() / "cache";
  }

  void write(const std::string& name, const std::string& content) {
    options_.paths.push_back(folder_.write(name, content).string());
  }
  Corpus open() { return Corpus::open(options_, *tokenizer_); }
  std::string error() {
    return message_of([&] { open(); });
  }
  /// The targets that count, in order of position.
  static std::vector<std::int64_t> targets(const SampleSet& samples) {
    std::vector<std::int64_t> all;
    const BatchSampler sampler(samples, {.order = SampleOrder::Strided});
    for (std::int64_t g = 0; g < samples.size(); ++g) {
      for (const std::int64_t target : sampler.batch(g, 0).targets) {
        if (target != kNoTarget) {
          all.push_back(target);
        }
      }
    }
    return all;
  }
  static std::string text(const std::vector<std::int64_t>& tokens) {
    return ByteTokenizer().decode(tokens);
  }

  TemporaryFolder folder_;
  CorpusOptions options_;
  std::unique_ptr<const Tokenizer> tokenizer_ = open_tokenizer("bytes");
};

TEST_F(CorpusOf, TextHoldsOutItsTail) {
  write("a.txt", "0123456789");
  write("b.txt", "abcdefghij");
  options_.validation_fraction = 0.25;
  options_.has_validation = true;
  const Corpus corpus = open();
  EXPECT_EQ(corpus.tokens().size(), 20);
  EXPECT_EQ(text(targets(corpus.training())), "123456789abc");
  ASSERT_NE(corpus.validation(), nullptr);
  EXPECT_EQ(text(targets(*corpus.validation())), "ghij");
  EXPECT_FALSE(fs::exists(options_.cache_folder));
}

TEST_F(CorpusOf, FractionZeroHoldsOutNothing) {
  write("a.txt", "0123456789");
  const Corpus corpus = open();
  EXPECT_EQ(corpus.validation(), nullptr);
  EXPECT_EQ(text(targets(corpus.training())), "12345678");
}

TEST_F(CorpusOf, FractionOutOfRangeIsAnError) {
  write("a.txt", "0123456789");
  for (const double fraction : {-0.1, 1.0, std::nan("")}) {
    options_.validation_fraction = fraction;
    EXPECT_THAT(error(), HasSubstr("at least 0 and less than 1"));
  }
}

TEST_F(CorpusOf, PackedTextPredictsNothingAcrossDocuments) {
  write("a.txt", "ab.cde.");
  write("b.txt", "f.ghijkl.");
  options_.packing = Packing::Documents;
  options_.document_separator = ".";
  const Corpus corpus = open();
  EXPECT_EQ(text(targets(corpus.training())), "b.de..hijkl.");
}

TEST_F(CorpusOf, PackedTextWithoutSeparatorIsADocumentAFile) {
  write("a.txt", "abc");
  write("b.txt", "fg");
  options_.packing = Packing::Documents;
  EXPECT_EQ(text(targets(open().training())), "bcg");
}

TEST_F(CorpusOf, TokenFilesArePackedByTheirEndId) {
  write("a.bin", bytes_of<std::uint16_t>({10, 11, 0, 20, 21}));
  write("b.bin", bytes_of<std::uint16_t>({22, 0, 30, 31, 0}));
  options_.token_dtype = TokenDtype::Uint16;
  options_.packing = Packing::Documents;
  options_.eos_token = 0;
  EXPECT_THAT(targets(open().training()),
              ::testing::ElementsAre(11, 0, 21, 22, 0, 31, 0));
}

TEST_F(CorpusOf, SentencePieceTextIsPackedByItsControlIds) {
  tokenizer_ =
      open_tokenizer(testing::train_sentence_piece(folder_.path()).string());
  write("a.txt", "a rank##a piece");
  options_.packing = Packing::Documents;
  options_.document_separator = "##";
  std::vector<std::int64_t> expected;
  for (const char* document : {"a rank", "a piece"}) {
    const auto ids = tokenizer_->encode(document);
    expected.insert(expected.end(), ids.begin(), ids.end());
    expected.push_back(*tokenizer_->eos());
  }
  EXPECT_EQ(targets(open().training()), expected);
}

TEST_F(CorpusOf, TablesAreMadeAnewWhereAFileOrTheCutIsAnother) {
  write("a.txt", "ab.cde.");
  options_.packing = Packing::Documents;
  options_.document_separator = ".";
  EXPECT_EQ(text(targets(open().training())), "b.de.");
  folder_.write("a.txt", "abcd.ef.");
  EXPECT_EQ(text(targets(open().training())), "bcd.f.");
  options_.document_separator = "e";
  EXPECT_EQ(text(targets(open().training())), "bcd.e.");
  options_.seq_len = 2;
  EXPECT_EQ(text(targets(open().training())), "bcd.e.");
  options_.validation_fraction = 0.5;
  EXPECT_EQ(text(targets(open().training())), "bcd");
}

TEST_F(CorpusOf, CheckMakesNoCaches) {
  write("a.txt", "ab.cde.");
  options_.packing = Packing::Documents;
  Corpus::check(options_, *tokenizer_);
  EXPECT_FALSE(fs::exists(options_.cache_folder));
  options_.paths.push_back("/nowhere/b.txt");
  EXPECT_THAT(message_of([&] { Corpus::check(options_, *tokenizer_); }),
              HasSubstr("/nowhere/b.txt"));
}

TEST_F(CorpusOf, FingerprintTellsWhatIsCutOtherwise) {
  write("a.txt", "0123456789");
  const auto first = open().fingerprint();
  EXPECT_EQ(open().fingerprint(), first);
  options_.seq_len = 5;
  EXPECT_NE(open().fingerprint(), first);
  options_.seq_len = 4;
  write("b.txt", "a");
  EXPECT_NE(open().fingerprint(), first);
}

TEST_F(CorpusOf, TooLittleDataIsAnErrorThatSaysWhichPart) {
  write("a.txt", "0123456789");
  options_.seq_len = 10;
  EXPECT_THAT(error(), HasSubstr("training part is too short: 10 tokens, but "
                                 "data.seq_len 10 needs at least 11"));
  options_.seq_len = 4;
  options_.validation_fraction = 0.4;
  options_.has_validation = true;
  EXPECT_THAT(error(), HasSubstr("held-out part is too short: 4 tokens"));
}

TEST_F(CorpusOf, FilesOfTwoKindsAreAnError) {
  write("a.txt", "0123456789");
  write("b.bin", "0123");
  EXPECT_THAT(error(), HasSubstr("finds text"));
}

TEST_F(CorpusOf, OptionThatSaysNothingOfTextIsAnError) {
  write("a.txt", "0123456789");
  options_.token_dtype = TokenDtype::Uint16;
  EXPECT_THAT(error(), HasSubstr("'data.token_dtype' is set"));
  options_.token_dtype = TokenDtype::Auto;
  options_.eos_token = 0;
  EXPECT_THAT(error(), HasSubstr("text, whose tokenizer has these"));
  options_.eos_token = -1;
  options_.document_separator = ".";
  EXPECT_THAT(error(), HasSubstr("changes nothing"));
}

TEST_F(CorpusOf, OptionThatSaysNothingOfTokensIsAnError) {
  write("a.bin", bytes_of<std::uint16_t>({1, 2, 3, 4, 5, 6}));
  options_.token_dtype = TokenDtype::Uint16;
  options_.document_separator = ".";
  EXPECT_THAT(error(), HasSubstr("where text cannot be found"));
  options_.document_separator = "";
  options_.eos_token = 1;
  EXPECT_THAT(error(), HasSubstr("tell documents apart"));
  options_.packing = Packing::Documents;
  options_.eos_token = 256;
  EXPECT_THAT(error(), HasSubstr("vocab_size is 256. Ids must be below it"));
}

TEST_F(CorpusOf, SeparatorNeedsATokenizerWithBeginOrEnd) {
  tokenizer_ = open_tokenizer(testing::train_sentence_piece(
                                  folder_.path(), 90, "--bos_id=-1 --eos_id=-1")
                                  .string());
  write("a.txt", "a rank##a piece");
  options_.packing = Packing::Documents;
  options_.document_separator = "##";
  EXPECT_THAT(error(), HasSubstr("neither a begin nor an end token"));
}

}  // namespace
}  // namespace accordion
