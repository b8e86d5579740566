// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/rank_agreement.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "accordion/comm/shm/shm_communicator.h"

namespace accordion {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

/// Runs `body` on ranks that are threads; the error of each, "" for none.
std::vector<std::string> errors_of(
    int world_size, const std::function<void(Communicator&)>& body) {
  auto group = make_local_shm_group(world_size, std::chrono::seconds(5));
  std::vector<std::string> errors(group.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < group.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(*group[rank]);
      } catch (const std::exception& error) {
        errors[rank] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return errors;
}

TEST(RankAgreement, RanksWaitUntilAllJobsAreDone) {
  std::atomic<int> done = 0;
  const auto errors = errors_of(3, [&](Communicator& world) {
    RankJob job;
    if (world.rank() != 1) {
      job = [&](const std::stop_token&) { ++done; };
    }
    run_while_others_wait(world, job, "test");
    EXPECT_EQ(done, 2);
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(RankAgreement, JobThatFailsIsTheErrorOfEveryRank) {
  std::atomic<bool> stopped = false;
  const auto errors = errors_of(3, [&](Communicator& world) {
    RankJob job;
    if (world.rank() == 2) {
      job = [](const std::stop_token&) {
        throw std::runtime_error("no room on the disk");
      };
    } else if (world.rank() == 1) {
      job = [&](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
          std::this_thread::yield();
        }
        stopped = true;
      };
    }
    run_while_others_wait(world, job, "test");
  });
  EXPECT_THAT(errors, Each("no room on the disk"));
  EXPECT_TRUE(stopped);
}

TEST(RankAgreement, ValuesThatDifferNameTheRanks) {
  const auto equal = errors_of(3, [](Communicator& world) {
    require_equal(world, 0xffffffffffffffffU, "files");
  });
  EXPECT_THAT(equal, Each(""));
  // They differ in the last bit, and in the first.
  for (const std::uint64_t bit : {std::uint64_t{1}, std::uint64_t{1} << 63}) {
    const auto errors = errors_of(3, [&](Communicator& world) {
      require_equal(world, world.rank() == 1 ? bit : 0, "files");
    });
    EXPECT_THAT(errors, Each(AllOf(HasSubstr("The files are not the same"),
                                   HasSubstr("rank(s) 1 differ"))));
  }
}

TEST(RankAgreement, TextOfRank0ReachesAllOrItsErrorDoes) {
  const auto text = errors_of(2, [](Communicator& world) {
    EXPECT_EQ(text_from_rank_0(
                  world, [] { return "run"; }, "test"),
              "run");
  });
  EXPECT_THAT(text, Each(""));
  const auto errors = errors_of(2, [](Communicator& world) {
    text_from_rank_0(
        world, []() -> std::string { throw std::runtime_error("is taken"); },
        "test");
  });
  EXPECT_THAT(errors, Each("is taken"));
}

}  // namespace
}  // namespace accordion
