// SPDX-License-Identifier: BSD-3-Clause
#include "tests/support/rank_harness.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace accordion::testing {
namespace {

const RankProgram kEcho("harness_echo", [](const RankContext& context) {
  std::printf("rank %d of %d in %s", context.rank, context.world_size,
              context.session.c_str());
  for (const std::string& argument : context.arguments) {
    std::printf(" <%s>", argument.c_str());
  }
  EXPECT_STREQ(std::getenv("LOCAL_RANK"), std::getenv("RANK"));
});

const RankProgram kFailedAssertion(
    "harness_failed_assertion", [](const RankContext& context) {
      EXPECT_NE(context.rank, 1) << "rank one is unhappy";
      if (context.rank != 1) {
        pause();  // until the harness ends the survivors
      }
    });

const RankProgram kThrows("harness_throws", [](const RankContext&) {
  throw std::runtime_error("no luck today");
});

const RankProgram kAbort("harness_abort", [](const RankContext& context) {
  if (context.rank == 2) {
    std::abort();
  }
  pause();
});

const RankProgram kHangs("harness_hangs", [](const RankContext&) { pause(); });

TEST(RankHarness, GivesEachRankItsContext) {
  const auto results = run_ranks(kEcho, 3, {"a b", ""});
  ASSERT_EQ(results.size(), 3u);
  for (int rank = 0; rank < 3; ++rank) {
    const RankResult& result = results[static_cast<std::size_t>(rank)];
    EXPECT_EQ(result.exit_code, 0) << result.output;
    const std::string start = "rank " + std::to_string(rank) + " of 3 in test-";
    EXPECT_EQ(result.output.substr(0, start.size()), start);
    EXPECT_NE(result.output.find(" <a b> <>"), std::string::npos);
  }
}

TEST(RankHarness, NamesTheRankWhoseAssertionFailed) {
  EXPECT_NONFATAL_FAILURE(expect_ranks_pass(kFailedAssertion, 3),
                          "rank 1 of 3 failed first: it exited with 1");
}

TEST(RankHarness, ReportsAnException) {
  EXPECT_NONFATAL_FAILURE(expect_ranks_pass(kThrows, 1), "no luck today");
}

TEST(RankHarness, ReportsASignalAndEndsTheOthers) {
  const auto results = run_ranks(kAbort, 3, {}, std::chrono::seconds(60),
                                 std::chrono::milliseconds(50));
  EXPECT_EQ(results[2].signal, SIGABRT);
  EXPECT_EQ(results[0].signal, SIGKILL);
  EXPECT_EQ(results[1].signal, SIGKILL);
}

TEST(RankHarness, EndsRanksThatTakeTooLong) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_NONFATAL_FAILURE(
      expect_ranks_pass(kHangs, 1, {}, std::chrono::seconds(1)),
      "took more than 1 s: rank 0 of 1 was ended by signal 9");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

}  // namespace
}  // namespace accordion::testing
