// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/shard/unit_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/shard/layout_support.h"

namespace accordion {
namespace {

using testing::count_pieces;
using ::testing::HasSubstr;
using testing::PieceCount;
using testing::Shape;
using testing::specs_of;

std::string error_of(std::vector<ParameterSpec> specs, int world_size) {
  try {
    UnitLayout::make(std::move(specs), world_size);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "no error";
}

TEST(UnitLayout, VectorIsCutInEqualPartsOf64Bytes) {
  const UnitLayout layout = UnitLayout::make(specs_of({{100}}), 3);
  const Section& section = layout.sections().at(0);
  EXPECT_EQ(section.numel, 100);
  EXPECT_EQ(section.numel_per_rank, 48);  // 34 elements, rounded up to 64 bytes
  EXPECT_EQ(section.padded_numel, 144);
  EXPECT_EQ(layout.piece(0, 1).begin, 48);
  EXPECT_EQ(layout.piece(0, 2).local_shape, (Shape{4}));
  EXPECT_EQ(layout.sharded_bytes(), 48 * 4);
  EXPECT_EQ(layout.unsharded_bytes(), 144 * 4);
}

TEST(UnitLayout, MatrixIsCutBetweenRows) {
  const UnitLayout layout = UnitLayout::make(specs_of({{257, 120}}), 2);
  const Piece first = layout.piece(0, 0);
  const Piece second = layout.piece(0, 1);
  EXPECT_EQ(first.begin, 0);
  EXPECT_EQ(first.end % 120, 0);
  EXPECT_EQ(first.local_shape.size(), 2u);
  EXPECT_EQ(first.local_shape[0] + second.local_shape[0], 257);
}

TEST(UnitLayout, RanksBeyondTheRowsOwnNothing) {
  const UnitLayout layout = UnitLayout::make(specs_of({{3, 16}}), 5);
  EXPECT_EQ(layout.piece(0, 2).local_shape, (Shape{1, 16}));
  EXPECT_EQ(layout.piece(0, 3).numel(), 0);
  EXPECT_EQ(layout.piece(0, 4).local_shape, (Shape{0, 16}));
}

TEST(UnitLayout, ScalarBelongsToOneRank) {
  const UnitLayout layout = UnitLayout::make(specs_of({{}, {2, 8}}), 2);
  EXPECT_EQ(layout.piece(0, 0).local_shape, Shape{});
  EXPECT_EQ(layout.piece(0, 0).numel(), 1);
  EXPECT_EQ(layout.piece(0, 1).local_shape, (Shape{0}));
}

TEST(UnitLayout, EmptyParameterTakesNoRoom) {
  const UnitLayout layout =
      UnitLayout::make(specs_of({{0, 5}, {5, 0}, {4}}), 2);
  EXPECT_EQ(layout.sections().at(0).numel, 4);
  EXPECT_EQ(layout.piece(0, 1).numel(), 0);
  EXPECT_EQ(layout.piece(1, 0).local_shape, (Shape{5, 0}));
  EXPECT_EQ(layout.offset_of(2), 0);

  const UnitLayout empty = UnitLayout::make(specs_of({{0}}), 4);
  EXPECT_EQ(empty.unsharded_bytes(), 0);
  EXPECT_TRUE(empty.gaps(0).empty());
}

TEST(UnitLayout, UnitWithoutParametersHasNoSections) {
  const UnitLayout layout = UnitLayout::make({}, 4);
  EXPECT_TRUE(layout.sections().empty());
  EXPECT_EQ(layout.sharded_bytes(), 0);
  EXPECT_EQ(layout.unsharded_bytes(), 0);
}

TEST(UnitLayout, WorldOfOneOwnsAllWithoutPaddingAtTheEnd) {
  const UnitLayout layout = UnitLayout::make(specs_of({{257, 120}, {331}}), 1);
  const Section& section = layout.sections().at(0);
  EXPECT_EQ(layout.offset_of(1), 30848);  // 30840, rounded up to 64 bytes
  EXPECT_EQ(section.padded_numel, 30848 + 331);
  EXPECT_EQ(layout.piece(0, 0).local_shape, (Shape{257, 120}));
}

TEST(UnitLayout, ParametersStartOn64Bytes) {
  const UnitLayout layout =
      UnitLayout::make(specs_of(testing::llama_block(120, 40, 331)), 3);
  for (int p = 0; p < 9; ++p) {
    EXPECT_EQ(layout.offset_of(p) * 4 % 64, 0) << p;
  }
}

TEST(UnitLayout, ManySmallParametersLieTightly) {
  const std::vector<Shape> scalars(1000, Shape{});
  const UnitLayout layout = UnitLayout::make(specs_of(scalars), 2);
  EXPECT_EQ(layout.offset_of(1), 1);
  EXPECT_EQ(layout.sections().at(0).padded_numel, 1024);
}

TEST(UnitLayout, SectionsFollowFirstAppearance) {
  std::vector<ParameterSpec> specs = specs_of({{8}, {8}, {8}, {8}, {8}});
  specs[1].stored_dtype = DType::Bfloat16;
  specs[2].requires_grad = false;
  specs[4].placement = Placement::Replicate;
  const UnitLayout layout = UnitLayout::make(specs, 2);

  ASSERT_EQ(layout.sections().size(), 4u);
  EXPECT_EQ(layout.sections()[0].parameters, (std::vector<int>{0, 3}));
  EXPECT_EQ(layout.section_of(1), 1);
  EXPECT_EQ(layout.section_of(2), 2);
  EXPECT_FALSE(layout.sections()[2].requires_grad);
  EXPECT_EQ(layout.section_of(4), 3);
}

TEST(UnitLayout, ReplicatedParameterIsWholeOnEveryRank) {
  std::vector<ParameterSpec> specs = specs_of({{7, 3}});
  specs[0].placement = Placement::Replicate;
  const UnitLayout layout = UnitLayout::make(specs, 4);
  EXPECT_EQ(layout.piece(0, 3).local_shape, (Shape{7, 3}));
  EXPECT_EQ(layout.piece(0, 3).shard_offset, 0);
  EXPECT_EQ(layout.sections()[0].padded_numel, 21);
}

TEST(UnitLayout, UnshardedSectionsStartOn64BytesInTheGatheredDtype) {
  std::vector<ParameterSpec> specs = specs_of({{24}, {24}});
  specs[0].gathered_dtype = DType::Bfloat16;
  const UnitLayout layout = UnitLayout::make(specs, 1);
  EXPECT_EQ(layout.unsharded_offset(0), 0);
  EXPECT_EQ(layout.unsharded_offset(1), 64);  // 24 * 2 bytes, rounded up
  EXPECT_EQ(layout.unsharded_bytes(), 64 + 128);
}

// Dims of well-known models, the demo's, and odd ones.
TEST(UnitLayout, LlamaBlocksAreCutBetweenRows) {
  const Shape blocks[] = {{256, 256, 688},
                          {768, 256, 2048},
                          {2048, 256, 5632},
                          {4096, 4096, 11008},
                          {4096, 1024, 14336}};
  for (const Shape& block : blocks) {
    for (const int world_size : {2, 4, 8}) {
      const UnitLayout layout = UnitLayout::make(
          specs_of(testing::llama_block(block[0], block[1], block[2])),
          world_size);
      const PieceCount pieces = count_pieces(layout);
      EXPECT_EQ(pieces.whole_rows, pieces.all)
          << block[0] << ' ' << block[1] << ' ' << block[2] << " on "
          << world_size;
    }
  }
}

// 1 % is less than the distance between common multiples of 384 and 1,024.
TEST(UnitLayout, CutsLeaveRowsWhereTheBoundDoesNotReach) {
  const UnitLayout layout =
      UnitLayout::make(specs_of(testing::llama_block(384, 128, 1024)), 8);
  const PieceCount pieces = count_pieces(layout);
  EXPECT_EQ(pieces.all, 14);
  EXPECT_EQ(pieces.whole_rows, 11);
}

TEST(UnitLayout, MostOfALlamaBlockIsCutBetweenRowsOn64Ranks) {
  const UnitLayout layout =
      UnitLayout::make(specs_of(testing::llama_block(4096, 1024, 14336)), 64);
  const PieceCount pieces = count_pieces(layout);
  EXPECT_GE(pieces.whole_rows * 100, pieces.all * 70);
}

TEST(UnitLayout, FaultySpecsAreNamed) {
  EXPECT_THAT(error_of(specs_of({{4}, {2, -3}}), 2),
              HasSubstr("'p1' has the shape [2, -3]: a dim must not be"));
  EXPECT_THAT(error_of(specs_of({{std::int64_t{1} << 40, 1 << 30}}), 2),
              HasSubstr("'p0' has the shape [1099511627776, 1073741824]: a "
                        "unit can hold"));
  EXPECT_THAT(error_of(specs_of({{std::int64_t{1} << 56}, {1}}), 2),
              HasSubstr("with 'p1' the unit has more than"));
  std::vector<ParameterSpec> twice = specs_of({{4}, {4}});
  twice[1].name = "p0";
  EXPECT_THAT(error_of(twice, 2), HasSubstr("'p0' is given to two"));
  EXPECT_THAT(error_of(specs_of({{4}}), 0), HasSubstr("world_size is 0"));
}

TEST(UnitLayout, EmptyParameterMayHaveAnyOtherDims) {
  const std::int64_t huge = std::int64_t{1} << 62;
  const UnitLayout layout = UnitLayout::make(specs_of({{huge, huge, 0}}), 2);
  EXPECT_EQ(layout.numel(0), 0);
}

}  // namespace
}  // namespace accordion
