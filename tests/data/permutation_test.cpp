// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/data/permutation.h"

#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/fixtures.h"

namespace accordion {
namespace {

std::vector<std::int64_t> order(std::int64_t size, std::uint64_t seed) {
  const Permutation permutation(size, seed);
  std::vector<std::int64_t> elements;
  for (std::int64_t i = 0; i < size; ++i) {
    elements.push_back(permutation(i));
  }
  return elements;
}

TEST(Permutation, VisitsEachElementOnce) {
  for (std::int64_t size = 1; size <= 300; ++size) {
    std::vector<int> visits(static_cast<std::size_t>(size), 0);
    for (const std::int64_t element : order(size, 7)) {
      ASSERT_GE(element, 0);
      ASSERT_LT(element, size);
      ++visits[static_cast<std::size_t>(element)];
    }
    ASSERT_THAT(visits, ::testing::Each(1)) << "size " << size;
  }
}

TEST(Permutation, DependsOnTheSeedAlone) {
  EXPECT_EQ(order(1000, 1), order(1000, 1));
  EXPECT_NE(order(1000, 1), order(1000, 2));
}

// Neighbours must not stay neighbours: a random order has about one pair of
// consecutive elements in a row, whatever its size.
TEST(Permutation, ScattersNeighbours) {
  const auto elements = order(10000, 3);
  int neighbours = 0;
  double distance = 0.0;
  for (std::size_t i = 1; i < elements.size(); ++i) {
    const auto step = std::abs(elements[i] - elements[i - 1]);
    neighbours += step == 1 ? 1 : 0;
    distance += static_cast<double>(step);
  }
  EXPECT_LE(neighbours, 12);
  // Mean distance of two random elements of n: n / 3.
  EXPECT_NEAR(distance / 9999.0, 10000.0 / 3.0, 100.0);
}

TEST(Permutation, HandlesSizesBeyond32Bits) {
  const std::int64_t size = (std::int64_t{1} << 40) + 1;
  const Permutation permutation(size, 5);
  for (std::int64_t i = size - 50; i < size; ++i) {
    EXPECT_LT(permutation(i), size);
    EXPECT_GE(permutation(i), 0);
  }
}

TEST(Permutation, NothingToOrderIsAnError) {
  EXPECT_THAT(testing::message_of([] { Permutation(0, 1); }),
              ::testing::HasSubstr("at least 1"));
}

}  // namespace
}  // namespace accordion
