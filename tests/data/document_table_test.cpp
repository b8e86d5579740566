// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/data/document_table.h"

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
using testing::TemporaryFolder;

class DocumentTable : public ::testing::Test {
 protected:
  void add_tokens(const std::vector<std::uint16_t>& ids) {
    files_.push_back(inspect_token_file(
        folder_.write(fmt::format("{}.bin", files_.size()), bytes_of(ids)),
        TokenDtype::Uint16));
  }
  void add_text(const std::string& text) {
    files_.push_back(inspect_text_file(
        folder_.write(fmt::format("{}.txt", files_.size()), text)));
  }

  std::vector<std::int64_t> find(const DocumentMarks& marks,
                                 const std::stop_token& stop = {}) {
    const auto path = folder_.path() / "documents";
    CacheWriter writer(path, 8, 0);
    find_documents(TokenStream(files_, {.vocab_size = 1 << 16}), marks, writer,
                   stop);
    writer.commit();
    const PositionTable table = PositionTable::open(path);
    return {table.values().begin(), table.values().end()};
  }

  TemporaryFolder folder_;
  std::vector<TokenFile> files_;
};

constexpr std::optional<std::int64_t> kNone = std::nullopt;

TEST_F(DocumentTable, EndIdEndsADocumentAcrossFiles) {
  add_tokens({5, 0, 6, 7});
  add_tokens({8, 0, 0, 9, 0});
  const DocumentMarks marks = {
      .bos = kNone, .eos = 0, .separator = {}, .at_files = false};
  EXPECT_THAT(find(marks), ElementsAre(0, 2, 6, 7));
}

TEST_F(DocumentTable, BeginIdBeginsADocument) {
  add_tokens({5, 1, 6, 1});
  add_tokens({1, 8});
  const DocumentMarks marks = {
      .bos = 1, .eos = kNone, .separator = {}, .at_files = false};
  EXPECT_THAT(find(marks), ElementsAre(0, 1, 3, 4));
}

TEST_F(DocumentTable, BothIdsTogetherBeginEachDocumentOnce) {
  add_tokens({1, 5, 2, 1, 6, 2, 7, 2});
  const DocumentMarks marks = {
      .bos = 1, .eos = 2, .separator = {}, .at_files = true};
  EXPECT_THAT(find(marks), ElementsAre(0, 3, 6));
}

TEST_F(DocumentTable, WithoutMarksAFileIsADocument) {
  add_tokens({5, 6});
  add_tokens({7});
  EXPECT_THAT(find({}), ElementsAre(0, 2));
}

TEST_F(DocumentTable, SeparatorBelongsToTheDocumentThatItEnds) {
  add_text("ab--c");
  add_text("--d--");
  EXPECT_THAT(find({.bos = kNone, .eos = kNone, .separator = "--"}),
              ElementsAre(0, 4, 5, 7));
}

TEST_F(DocumentTable, IdAtTheEdgeOfABlockIsSeen) {
  std::vector<std::uint16_t> ids(200000, 7);
  ids[65535] = 0;
  ids[131072] = 0;
  add_tokens(ids);
  const DocumentMarks marks = {
      .bos = kNone, .eos = 0, .separator = {}, .at_files = false};
  EXPECT_THAT(find(marks), ElementsAre(0, 65536, 131073));
}

TEST_F(DocumentTable, StopsWhenAsked) {
  add_tokens({5, 0, 6});
  std::stop_source stop;
  stop.request_stop();
  const DocumentMarks marks = {
      .bos = kNone, .eos = 0, .separator = {}, .at_files = false};
  EXPECT_THAT(testing::message_of([&] { find(marks, stop.get_token()); }),
              ::testing::HasSubstr("was interrupted"));
}

}  // namespace
}  // namespace accordion
