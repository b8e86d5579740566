// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/data/corpus.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/fixtures.h"

namespace accordion {
namespace {

using testing::TemporaryFolder;

TEST(Corpus, HoldsOutTheTail) {
  const TemporaryFolder folder;
  const auto corpus = Corpus::open(folder.write("a.txt", "0123456789"), 0.25);
  EXPECT_EQ(corpus.text().size(), 10U);
  EXPECT_EQ(corpus.training().size(), 8U);
  ASSERT_EQ(corpus.validation().size(), 2U);
  EXPECT_EQ(corpus.training()[7], '7');
  EXPECT_EQ(corpus.validation()[0], '8');
}

TEST(Corpus, FractionZeroHoldsOutNothing) {
  const TemporaryFolder folder;
  const auto corpus = Corpus::open(folder.write("a.txt", "0123456789"), 0.0);
  EXPECT_EQ(corpus.training().size(), 10U);
  EXPECT_TRUE(corpus.validation().empty());
}

TEST(Corpus, FractionOutOfRangeIsAnError) {
  for (const double fraction : {-0.1, 1.0, std::nan("")}) {
    EXPECT_THAT(testing::message_of([&] { Corpus::open("unused", fraction); }),
                ::testing::HasSubstr("at least 0 and less than 1"));
  }
}

}  // namespace
}  // namespace accordion
