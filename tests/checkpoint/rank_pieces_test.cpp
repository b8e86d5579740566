// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/rank_pieces.h"

#include <sstream>

#include <gtest/gtest.h>

#include "tests/checkpoint/weight_files.h"
#include "tests/checkpoint/written_checkpoint.h"

namespace accordion::testing {
namespace {

using detail::each_rank_text;
using detail::rank_bars;

TensorPiece piece(int rank, std::int64_t begin, std::int64_t end) {
  return {.rank = rank, .file = "f", .begin = begin, .end = end};
}

TensorReport tensor(std::vector<std::int64_t> shape,
                    std::vector<TensorPiece> pieces) {
  TensorReport report;
  report.info.shape = std::move(shape);
  report.info.numel = pieces.empty() ? 0 : pieces.back().end;
  report.pieces = std::move(pieces);
  return report;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

TEST(RankPieces, CountsRowsWherePiecesAreRows) {
  const TensorReport rows =
      tensor({5, 4}, {piece(0, 0, 8), piece(1, 8, 16), piece(2, 16, 20)});
  EXPECT_EQ(each_rank_text(rows, {0, 1, 2}), "rows 2 x 2, 1");
  EXPECT_EQ(each_rank_text(rows, {0, 1, 2, 3}), "rows 2 x 2, 1, 0");
  const TensorReport flat = tensor({5, 4}, {piece(0, 0, 7), piece(1, 7, 20)});
  EXPECT_EQ(each_rank_text(flat, {0, 1}), "elements 7, 13");
  const TensorReport vector = tensor({6}, {piece(0, 0, 3), piece(1, 3, 6)});
  EXPECT_EQ(each_rank_text(vector, {0, 1}), "elements 2 x 3");
}

TEST(RankPieces, NamesTheOnlyHolder) {
  const TensorReport whole = tensor({6}, {piece(2, 0, 6), piece(3, 6, 6)});
  EXPECT_EQ(each_rank_text(whole, {0, 2, 3}), "all on rank 2");
  const TensorReport scalar = tensor({}, {piece(1, 0, 1)});
  EXPECT_EQ(each_rank_text(scalar, {0, 1}), "all on rank 1");
  EXPECT_EQ(each_rank_text(tensor({0, 4}, {}), {0, 1}), "");
}

TEST(RankPieces, SaysNothingOfRanksItDoesNotKnow) {
  TensorReport foreign = tensor({6}, {piece(0, 0, 6)});
  foreign.pieces[0].rank = std::nullopt;
  EXPECT_EQ(each_rank_text(foreign, {}), "");
  EXPECT_EQ(rank_bars(foreign, {0}), "");
}

TEST(RankPieces, BarsShowWhereEachPieceLies) {
  const TensorReport halves =
      tensor({8}, {piece(0, 0, 4), piece(1, 4, 8), piece(2, 8, 8)});
  const auto lines = lines_of(rank_bars(halves, {0, 1, 2}));
  ASSERT_EQ(lines.size(), 3U);
  const auto cells = [](std::size_t count, char of) {
    return std::string(count, of);
  };
  EXPECT_EQ(lines[0], "rank 0  [" + cells(23, '#') + cells(22, '.') +
                          "]  [0, 4)   50.0 %");
  EXPECT_EQ(lines[1], "rank 1  [" + cells(23, '.') + cells(22, '#') +
                          "]  [4, 8)   50.0 %");
  EXPECT_EQ(lines[2], "rank 2  [" + cells(45, '.') + "]  empty     0.0 %");
  EXPECT_EQ(lines[0].size(), detail::kBarLineWidth);
}

TEST(RankPieces, BarsFitTheWidthAtAnySize) {
  const std::int64_t part = 1'000'000'007;
  std::vector<TensorPiece> pieces;
  std::vector<int> ranks;
  for (int rank = 0; rank < 128; ++rank) {
    pieces.push_back(piece(rank, rank * part, (rank + 1) * part));
    ranks.push_back(rank);
  }
  for (const std::string& line :
       lines_of(rank_bars(tensor({128 * part}, pieces), ranks))) {
    EXPECT_LE(line.size(), detail::kBarLineWidth) << line;
    EXPECT_NE(line.find('#'), std::string::npos) << line;
  }
}

TEST(RankPieces, SmallPiecesShowAndSeveralOfARankToo) {
  const TensorReport uneven =
      tensor({1000}, {piece(0, 0, 1), piece(1, 1, 999), piece(0, 999, 1000)});
  const auto lines = lines_of(rank_bars(uneven, {0, 1}));
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_NE(lines[0].find("[#."), std::string::npos);
  EXPECT_NE(lines[1].find(".#]  [999, 1000)    0.1 %"), std::string::npos)
      << lines[1];
  EXPECT_EQ(each_rank_text(uneven, {0, 1}), "elements 2, 998");
  EXPECT_EQ(lines_of(rank_bars(tensor({0}, {}), {0, 1})).size(), 2U);
}

TEST(RankPieces, OneTensorIsShownRangeByRange) {
  const TemporaryFolder folder;
  write_three_ranks(folder.path() / "c");
  TensorSource source = TensorSource::open(folder.path() / "c");
  const InspectReport report = inspect(source, {.tensor = "model/w"});
  const std::string text = to_tensor_text(report);
  const std::string offset = std::to_string(report.tensors[0].pieces[1].offset);
  EXPECT_NE(text.find("[4, 8)    [2, 4)  1     "
                      "shard-00001-of-00003.safetensors"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find(" " + offset + "\n"), std::string::npos) << text;
  EXPECT_NE(text.find("[8, 10)   20.0 %\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace accordion::testing
