// SPDX-License-Identifier: BSD-3-Clause
//
// What holds for every unit: random parameters, world sizes from 1 to 16,384.
#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <random>

#include "tests/shard/layout_support.h"

namespace accordion {
namespace {

using testing::Shape;

constexpr int kWorldSizes[] = {1, 2, 3, 4, 5, 7, 8, 64, 1000, 16384};
constexpr unsigned kSeed = 20240611;

template <class T, std::size_t N>
T pick(const T (&values)[N], std::mt19937& random) {
  return values[random() % N];
}

ParameterSpec random_parameter(int index, std::mt19937& random) {
  static constexpr std::int64_t kDims[] = {0,  1,   2,   3,   5,  16,
                                           64, 120, 128, 257, 331};
  static constexpr DType kStored[] = {DType::Float32, DType::Float32,
                                      DType::Bfloat16, DType::Float64,
                                      DType::Uint8};
  static constexpr DType kGathered[] = {DType::Float32, DType::Bfloat16};
  ParameterSpec spec;
  spec.name = "p" + std::to_string(index);
  spec.shape.resize(random() % 4);  // scalars to three dims
  for (std::int64_t& dim : spec.shape) {
    dim = pick(kDims, random);
  }
  spec.stored_dtype = pick(kStored, random);
  spec.gathered_dtype = pick(kGathered, random);
  spec.requires_grad = random() % 4 != 0;
  spec.placement = random() % 8 == 0 ? Placement::Replicate : Placement::Shard;
  return spec;
}

/// Units of a few large or of many small parameters.
std::vector<ParameterSpec> random_unit(std::mt19937& random) {
  std::vector<ParameterSpec> specs;
  const int count = 1 + static_cast<int>(random() % (random() % 4 ? 8 : 60));
  for (int i = 0; i < count; ++i) {
    specs.push_back(random_parameter(i, random));
  }
  return specs;
}

/// Calls check(layout) for random units at every world size.
template <class Check>
void for_random_layouts(int units, const Check& check) {
  std::mt19937 random(kSeed);
  for (int unit = 0; unit < units; ++unit) {
    const std::vector<ParameterSpec> specs = random_unit(random);
    for (const int world_size : kWorldSizes) {
      SCOPED_TRACE("seed " + std::to_string(kSeed) + ", unit " +
                   std::to_string(unit) + ", world size " +
                   std::to_string(world_size));
      check(UnitLayout::make(specs, world_size));
      if (::testing::Test::HasFailure()) {
        return;
      }
    }
  }
}

int num_parameters(const UnitLayout& layout) {
  return static_cast<int>(layout.parameters().size());
}

/// Ranks worth a look: all of a small world, else those at the cuts around a
/// parameter, which own something of it, and the outermost.
std::vector<int> ranks_near(const UnitLayout& layout, int parameter) {
  const int world = layout.world_size();
  const Section& section = layout.sections()[layout.section_of(parameter)];
  std::vector<int> ranks;
  if (world <= 64 || section.numel_per_rank == 0) {
    ranks.resize(std::min(world, 64));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  const std::int64_t begin = layout.offset_of(parameter);
  const std::int64_t end = begin + layout.numel(parameter);
  const auto first = static_cast<int>(begin / section.numel_per_rank);
  const auto last = static_cast<int>(end / section.numel_per_rank);
  for (int r = std::max(0, first - 1); r <= std::min(last + 1, world - 1);
       ++r) {
    ranks.push_back(r);
  }
  return ranks;
}

TEST(UnitLayoutProperty, EveryElementIsOwnedOnce) {
  for_random_layouts(150, [](const UnitLayout& layout) {
    for (int p = 0; p < num_parameters(layout); ++p) {
      if (layout.parameters()[p].placement == Placement::Replicate) {
        EXPECT_EQ(layout.piece(p, layout.world_size() - 1).numel(),
                  layout.numel(p));
        continue;
      }
      std::int64_t next = 0;
      for (const int rank : ranks_near(layout, p)) {
        const Piece piece = layout.piece(p, rank);
        ASSERT_EQ(piece.begin, next) << "parameter " << p << " rank " << rank;
        ASSERT_GE(piece.end, piece.begin);
        next = piece.end;
      }
      ASSERT_EQ(next, layout.numel(p)) << "parameter " << p;
    }
  });
}

TEST(UnitLayoutProperty, PiecesLieInOrderInsideTheShard) {
  for_random_layouts(150, [](const UnitLayout& layout) {
    const int world = layout.world_size();
    for (const Section& section : layout.sections()) {
      for (int rank = 0; rank < world; rank += std::max(1, world / 61)) {
        std::int64_t free = 0;
        for (const int p : section.parameters) {
          const Piece piece = layout.piece(p, rank);
          ASSERT_GE(piece.shard_offset, free);
          free = piece.shard_offset + piece.numel();
          ASSERT_LE(free, section.numel_per_rank);
        }
      }
    }
  });
}

TEST(UnitLayoutProperty, LocalShapeHoldsThePiece) {
  for_random_layouts(100, [](const UnitLayout& layout) {
    for (int p = 0; p < num_parameters(layout); ++p) {
      const Shape& global = layout.parameters()[p].shape;
      for (const int rank : ranks_near(layout, p)) {
        const Piece piece = layout.piece(p, rank);
        const Shape& local = piece.local_shape;
        ASSERT_EQ(std::accumulate(local.begin(), local.end(), std::int64_t{1},
                                  std::multiplies<>()),
                  piece.numel());
        if (local.size() == global.size() && global.size() > 1) {
          ASSERT_TRUE(
              std::equal(local.begin() + 1, local.end(), global.begin() + 1));
        } else {
          ASSERT_LE(local.size(), 1u);
        }
      }
    }
  });
}

/// Element j of parameter p, so that a misplaced one names its source.
std::int64_t coded(int p, std::int64_t j) {
  return p * 1'000'000'000L + j;
}

/// A section's flat buffer, put together from every rank's shard; -1 is
/// padding.
std::vector<std::int64_t> gather(const UnitLayout& layout,
                                 const Section& section) {
  std::vector<std::int64_t> full(section.padded_numel, -1);
  const bool sharded = section.placement == Placement::Shard;
  for (int rank = 0; rank < (sharded ? layout.world_size() : 1); ++rank) {
    for (const int p : section.parameters) {
      const Piece piece = layout.piece(p, rank);
      const std::int64_t at =
          rank * section.numel_per_rank + piece.shard_offset;
      for (std::int64_t j = 0; j < piece.numel(); ++j) {
        full.at(at + j) = coded(p, piece.begin + j);
      }
    }
  }
  return full;
}

TEST(UnitLayoutProperty, ScatterThenGatherIsExact) {
  for_random_layouts(150, [](const UnitLayout& layout) {
    for (std::size_t s = 0; s < layout.sections().size(); ++s) {
      const Section& section = layout.sections()[s];
      if (layout.world_size() > 64 || section.numel > 60'000) {
        continue;
      }
      const std::vector<std::int64_t> full = gather(layout, section);
      for (const int p : section.parameters) {
        for (std::int64_t j = 0; j < layout.numel(p); ++j) {
          ASSERT_EQ(full.at(layout.offset_of(p) + j), coded(p, j));
        }
      }
      std::int64_t padding = 0;
      for (const Range& gap : layout.gaps(static_cast<int>(s))) {
        for (std::int64_t i = gap.begin; i < gap.end; ++i) {
          ASSERT_EQ(full.at(i), -1);
        }
        padding += gap.end - gap.begin;
      }
      ASSERT_EQ(padding, section.padded_numel - section.numel);
    }
  });
}

TEST(UnitLayoutProperty, PaddingStaysWithinTheBound) {
  for_random_layouts(400, [](const UnitLayout& layout) {
    for (const Section& section : layout.sections()) {
      ASSERT_GE(testing::padding_bytes(section), 0);
      ASSERT_LE(testing::padding_bytes(section),
                testing::most_padding_bytes(section, layout.world_size()));
    }
  });
}

TEST(UnitLayoutProperty, PartsAreCutOn64Bytes) {
  for_random_layouts(100, [](const UnitLayout& layout) {
    for (const Section& section : layout.sections()) {
      if (layout.world_size() > 1 && section.placement == Placement::Shard) {
        ASSERT_EQ(
            section.numel_per_rank * element_bytes(section.stored_dtype) % 64,
            0);
      }
    }
  });
}

TEST(UnitLayoutProperty, LargeUnitOnALargeWorldTakesMilliseconds) {
  std::vector<Shape> shapes;
  for (int block = 0; block < 45; ++block) {
    const std::vector<Shape> one = testing::llama_block(4096, 1024, 11008);
    shapes.insert(shapes.end(), one.begin(), one.end());
  }
  const auto begin = std::chrono::steady_clock::now();
  const UnitLayout layout = UnitLayout::make(testing::specs_of(shapes), 16384);
  const std::chrono::duration<double, std::milli> spent =
      std::chrono::steady_clock::now() - begin;
  RecordProperty("milliseconds", std::to_string(spent.count()));
  EXPECT_EQ(layout.parameters().size(), 405u);
  // A walk over ranks or elements would take seconds; a busy machine does not.
  EXPECT_LT(spent.count(), 250.0);
}

}  // namespace
}  // namespace accordion
