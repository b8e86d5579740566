// SPDX-License-Identifier: BSD-3-Clause
// Every test program's main: the tests, or one rank of a test that
// re-executed this program (rank_harness.h).
#include <gtest/gtest.h>

#include "tests/support/rank_harness.h"

int main(int argc, char** argv) {
  int exit_code = 0;
  if (accordion::testing::run_as_rank(argc, argv, exit_code)) {
    return exit_code;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
