// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/module/philox.h"

#include <gtest/gtest.h>

namespace accordion {
namespace {

// The vectors that the authors of the generator publish.
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(Philox(0).block(0, 0),
            (Philox::Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox(~0ULL).block(~0ULL, ~0ULL),
            (Philox::Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      Philox(0x299f31d0a4093822).block(0x85a308d3243f6a88, 0x0370734413198a2e),
      (Philox::Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

}  // namespace
}  // namespace accordion
