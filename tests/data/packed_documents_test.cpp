// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/data/packed_documents.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "accordion/data/permutation.h"
#include "tests/data/fixtures.h"
#include "tests/data/memory_tokens.h"

namespace accordion {
namespace {

using ::testing::ElementsAre;
using testing::numbered_tokens;
using testing::TemporaryFolder;
constexpr std::int64_t kNone = kNoTarget;

std::vector<std::int64_t> pack(const std::vector<std::int64_t>& documents,
                               std::int64_t begin, std::int64_t end,
                               std::int64_t seq_len) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "rows";
  CacheWriter writer(path, 8, 0);
  pack_documents(documents, begin, end, seq_len, writer);
  writer.commit();
  const PositionTable table = PositionTable::open(path);
  return {table.values().begin(), table.values().end()};
}

struct Row {
  std::vector<std::int64_t> inputs;
  std::vector<std::int64_t> targets;
};

Row read(const PackedDocuments& samples, std::int64_t position) {
  const auto length = static_cast<std::size_t>(samples.seq_len());
  Row row = {std::vector<std::int64_t>(length, -1),
             std::vector<std::int64_t>(length, -1)};
  samples.read(position, {.inputs = row.inputs, .targets = row.targets});
  return row;
}

TEST(PackDocuments, DocumentsThatFitShareARow) {
  EXPECT_THAT(pack({0, 3, 5, 9}, 0, 13, 7), ElementsAre(0, 5, 13));
}

TEST(PackDocuments, LastTokenOfARowMayBeATargetOnly) {
  EXPECT_THAT(pack({0, 4}, 0, 9, 8), ElementsAre(0, 9));
  EXPECT_THAT(pack({0, 4}, 0, 10, 8), ElementsAre(0, 4, 10));
}

TEST(PackDocuments, LongDocumentBeginsARowAndSharesItsLast) {
  EXPECT_THAT(pack({0, 2, 13}, 0, 15, 4), ElementsAre(0, 2, 6, 10, 15));
  EXPECT_THAT(pack({0, 2, 13}, 0, 16, 4), ElementsAre(0, 2, 6, 10, 13, 16));
}

TEST(PackDocuments, PartOfTheDataCutsDocumentsAtItsEdges) {
  EXPECT_THAT(pack({0, 4, 8, 12}, 0, 6, 4), ElementsAre(0, 4, 6));
  EXPECT_THAT(pack({0, 4, 8, 12}, 6, 16, 4), ElementsAre(6, 8, 12, 16));
}

TEST(PackedDocuments, MasksEdgesOfDocumentsAndWhatIsEmpty) {
  const auto tokens = numbered_tokens(20, 100);
  const std::vector<std::int64_t> documents = {0, 3, 5, 11};
  const auto rows = pack(documents, 0, 20, 6);
  ASSERT_THAT(rows, ElementsAre(0, 5, 11, 17, 20));
  const PackedDocuments samples(tokens, documents, rows, 6);
  ASSERT_EQ(samples.size(), 4);
  EXPECT_THAT(read(samples, 0).inputs, ElementsAre(0, 1, 2, 3, 4, 0));
  EXPECT_THAT(read(samples, 0).targets,
              ElementsAre(1, 2, kNone, 4, kNone, kNone));
  // Filled to the last place, and the next document follows.
  EXPECT_THAT(read(samples, 1).inputs, ElementsAre(5, 6, 7, 8, 9, 10));
  EXPECT_THAT(read(samples, 1).targets, ElementsAre(6, 7, 8, 9, 10, kNone));
  // Goes on in the next row, where its next token is.
  EXPECT_THAT(read(samples, 2).targets, ElementsAre(12, 13, 14, 15, 16, 17));
  EXPECT_THAT(read(samples, 3).inputs, ElementsAre(17, 18, 19, 0, 0, 0));
  EXPECT_THAT(read(samples, 3).targets,
              ElementsAre(18, 19, kNone, kNone, kNone, kNone));
}

TEST(PackedDocuments, TargetDoesNotReachBeyondThePart) {
  const auto tokens = numbered_tokens(20, 100);
  const std::vector<std::int64_t> documents = {0};
  const auto rows = pack(documents, 0, 8, 4);
  ASSERT_THAT(rows, ElementsAre(0, 4, 8));
  const PackedDocuments samples(tokens, documents, rows, 4);
  EXPECT_THAT(read(samples, 0).targets, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(read(samples, 1).targets, ElementsAre(5, 6, 7, kNone));
}

// Documents of 1 to 3 * seq_len tokens, of which token j is j.
class RandomDocuments : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(RandomDocuments, EachTokenButTheFirstIsATargetOnce) {
  const std::int64_t seq_len = GetParam();
  std::vector<std::int64_t> documents;
  std::int64_t size = 0;
  for (std::uint64_t i = 0; i < 200; ++i) {
    documents.push_back(size);
    size += 1 + static_cast<std::int64_t>(
                    mix_bits(i) % static_cast<std::uint64_t>(3 * seq_len));
  }
  const auto tokens = numbered_tokens(size, size);
  const auto rows = pack(documents, 0, size, seq_len);
  const PackedDocuments samples(tokens, documents, rows, seq_len);
  std::map<std::int64_t, int> seen;
  for (std::int64_t i = 0; i < samples.size(); ++i) {
    const Row row = read(samples, i);
    for (std::size_t t = 0; t < row.inputs.size(); ++t) {
      if (row.targets[t] != kNone) {
        ASSERT_EQ(row.targets[t], row.inputs[t] + 1);
        ++seen[row.targets[t]];
      }
    }
  }
  for (std::int64_t token = 0; token < size; ++token) {
    const bool first = std::ranges::binary_search(documents, token);
    ASSERT_EQ(seen[token], first ? 0 : 1) << "token " << token;
  }
}

TEST_P(RandomDocuments, OneThatFitsARowIsNotCut) {
  const std::int64_t seq_len = GetParam();
  std::vector<std::int64_t> documents = {0};
  for (std::uint64_t i = 0; i < 200; ++i) {
    documents.push_back(
        documents.back() + 1 +
        static_cast<std::int64_t>(mix_bits(i) %
                                  static_cast<std::uint64_t>(seq_len + 1)));
  }
  const std::int64_t size = documents.back();
  documents.pop_back();
  for (const std::int64_t row : pack(documents, 0, size, seq_len)) {
    ASSERT_TRUE(row == size || std::ranges::binary_search(documents, row));
  }
}

INSTANTIATE_TEST_SUITE_P(PackedDocuments, RandomDocuments,
                         ::testing::Values(1, 2, 7, 64));

TEST(PackedDocuments, OrdersGoThroughAllRows) {
  const auto tokens = numbered_tokens(20, 100);
  const std::vector<std::int64_t> documents = {0, 5, 10, 15};
  const auto rows = pack(documents, 0, 20, 5);
  const PackedDocuments samples(tokens, documents, rows, 5);
  ASSERT_EQ(samples.size(), 4);
  EXPECT_EQ(samples.strided(6), 2);
  EXPECT_EQ(samples.in_epoch(3, 99), 3);
  EXPECT_EQ(samples.spread(0, 1), 0);
  EXPECT_EQ(samples.spread(1, 2), 3);
}

}  // namespace
}  // namespace accordion
