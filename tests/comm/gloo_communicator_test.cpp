// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/gloo/gloo_communicator.h"

#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "tests/comm/collective_checks.h"
#include "tests/support/rank_harness.h"

namespace accordion::testing {
namespace {

using std::chrono::milliseconds;

std::unique_ptr<Communicator> connect(const RankContext& context,
                                      milliseconds timeout, bool debug_calls) {
  const GlooStore store(Rendezvous::from_environment(), timeout);
  return connect_gloo(store, {.rank = context.rank,
                              .world_size = context.world_size,
                              .name = "test",
                              .timeout = timeout,
                              .debug_calls = debug_calls});
}

const RankProgram kCollectives("gloo_collectives", [](const RankContext& c) {
  const auto communicator = connect(c, milliseconds(30'000), false);
  check_collectives(*communicator, Memory::CommBuffers);
  check_counters(*communicator);
  check_sums_repeat(*communicator, Memory::Ordinary);
  check_slot_reuse(*communicator, 20);
});

TEST(GlooCommunicator, CollectivesAreRight) {
  expect_ranks_pass(kCollectives, 2);
  expect_ranks_pass(kCollectives, 3);
}

const RankProgram kDisagree("gloo_disagree", [](const RankContext& c) {
  const auto communicator = connect(c, milliseconds(30'000), true);
  communicator->barrier("together");
  float values[4] = {};
  const GatherPart part = {values, DType::Float32, values, DType::Float32, 1};
  const std::string label = c.rank == 0 ? "layers.3" : "layers.4";
  const std::string message = message_of([&] {
    communicator->all_gather_into({&part, 1}, nullptr, label).wait();
  });
  EXPECT_NE(message.find("rank 0 called all_gather 'layers.3' (8 bytes"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find("rank 1 called all_gather 'layers.4' (8 bytes"),
            std::string::npos)
      << message;
});

TEST(GlooCommunicator, DebugModeNamesBothSidesOfADisagreement) {
  expect_ranks_pass(kDisagree, 2);
}

const RankProgram kLate("gloo_late", [](const RankContext& c) {
  const auto communicator = connect(c, milliseconds(1500), false);
  if (c.rank == 1) {
    // Outlives rank 0's patience, which ends the test.
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    return;
  }
  float values[4] = {};
  const GatherPart part = {values, DType::Float32, values, DType::Float32, 1};
  const std::string message = message_of([&] {
    communicator->all_gather_into({&part, 1}, nullptr, "layers.3").wait();
  });
  EXPECT_NE(message.find("all_gather 'layers.3' (call 1 of its kind) failed on "
                         "rank 0 of 2 while waiting for rank 1 (timeout 1500"),
            std::string::npos)
      << message;
});

TEST(GlooCommunicator, LateRankIsNamed) {
  expect_ranks_pass(kLate, 2);
}

// Ranks 1 and 3 do not come; rank 2 does, after rank 1 in rank 0's order.
const RankProgram kTwoLate("gloo_two_late", [](const RankContext& c) {
  const auto communicator = connect(c, milliseconds(1500), false);
  communicator->barrier("together");
  if (c.rank % 2 == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    return;
  }
  const std::string message =
      message_of([&] { communicator->barrier("step 7"); });
  EXPECT_NE(message.find("waiting for ranks 1 and 3 (timeout 1500 ms)"),
            std::string::npos)
      << message;
});

TEST(GlooCommunicator, AllRanksThatAreLateAreNamed) {
  expect_ranks_pass(kTwoLate, 4);
}

const RankProgram kNeverStarts("gloo_never", [](const RankContext& c) {
  if (c.rank == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    return;
  }
  const std::string message =
      message_of([&] { connect(c, milliseconds(1500), false); });
  // Where rank 0 gave up first, its store is gone.
  EXPECT_TRUE(message.find("of 3 waited 1500 ms for rank 1 to start") !=
                  std::string::npos ||
              (c.rank == 2 && message.find("rank 2 of 3 lost the store that "
                                           "rank 0") != std::string::npos))
      << message;
});

TEST(GlooCommunicator, RankThatDoesNotStartIsNamed) {
  expect_ranks_pass(kNeverStarts, 3);
}

// The first mesh of a job may still be there, or gone, when the next is made.
const RankProgram kTwice("gloo_twice", [](const RankContext& c) {
  auto first = connect(c, milliseconds(20'000), false);
  const auto second = connect(c, milliseconds(20'000), false);
  second->barrier("both");
  first->barrier("both");
});

TEST(GlooCommunicator, AJobMayConnectTwice) {
  expect_ranks_pass(kTwice, 2);
}

const RankProgram kDies("gloo_dies", [](const RankContext& c) {
  const auto communicator = connect(c, milliseconds(30'000), false);
  communicator->barrier("together");
  if (c.rank == 1) {
    std::raise(SIGKILL);
  }
  float values[4] = {};
  const GatherPart part = {values, DType::Float32, values, DType::Float32, 1};
  const std::string message = message_of([&] {
    communicator->all_gather_into({&part, 1}, nullptr, "layers.3").wait();
  });
  EXPECT_NE(message.find("waiting for rank 1"), std::string::npos) << message;
});

TEST(GlooCommunicator, DeadRankIsReportedBeforeTheTimeout) {
  const auto start = std::chrono::steady_clock::now();
  const auto results =
      run_ranks(kDies, 2, {}, std::chrono::seconds(60), milliseconds(20'000));
  EXPECT_EQ(results[0].exit_code, 0) << results[0].output;
  EXPECT_EQ(results[1].signal, SIGKILL);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
}

const RankProgram kNobodyHome("gloo_nobody", [](const RankContext& c) {
  if (c.rank == 0) {
    return;
  }
  const std::string message =
      message_of([&] { connect(c, milliseconds(1000), false); });
  EXPECT_NE(message.find("[gloo] rank 1 of 2 cannot meet the others at "
                         "127.0.0.1:"),
            std::string::npos)
      << message;
});

TEST(GlooCommunicator, MissingRankZeroIsAnError) {
  expect_ranks_pass(kNobodyHome, 2);
}

}  // namespace
}  // namespace accordion::testing
