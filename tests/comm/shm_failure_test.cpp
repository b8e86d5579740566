// SPDX-License-Identifier: BSD-3-Clause
// What the shm backend says when ranks die, leave, are late, disagree, or ask
// for memory that is not there; and what it leaves behind.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>

#include "accordion/comm/shm/memory.h"
#include "accordion/comm/shm/shm_communicator.h"
#include "tests/comm/collective_checks.h"
#include "tests/support/rank_harness.h"

namespace accordion::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

std::unique_ptr<Communicator> connect(const RankContext& context,
                                      milliseconds timeout) {
  return connect_shm({.rank = context.rank,
                      .world_size = context.world_size,
                      .name = context.session,
                      .timeout = timeout});
}

void expect_text(const std::string& message, const std::string& phrase) {
  EXPECT_NE(message.find(phrase), std::string::npos)
      << "expected: " << phrase << "\nmessage: " << message;
}

void gather(Communicator& communicator, const std::string& label,
            std::int64_t numel = 4) {
  std::vector<float> local(static_cast<std::size_t>(numel));
  std::vector<float> full(
      static_cast<std::size_t>(numel * communicator.world_size()));
  const GatherPart part = {local.data(), DType::Float32, full.data(),
                           DType::Float32, numel};
  communicator.all_gather_into({&part, 1}, nullptr, label).wait();
}

void reduce(Communicator& communicator, const std::string& label) {
  std::vector<float> full(
      static_cast<std::size_t>(4 * communicator.world_size()));
  std::vector<float> local(4);
  const ReducePart part = {full.data(),    DType::Float32, local.data(),
                           DType::Float32, DType::Float32, 4};
  communicator.reduce_scatter_into({&part, 1}, nullptr, label).wait();
}

const RankProgram kDies("shm_dies", [](const RankContext& c) {
  const auto communicator = connect(c, milliseconds(60'000));
  int victim = c.rank == c.world_size - 1 ? getpid() : 0;
  communicator->broadcast(&victim, sizeof(victim), c.world_size - 1, "pid");
  if (c.rank == c.world_size - 1) {
    std::raise(SIGKILL);
  }
  const auto start = Clock::now();
  const std::string message =
      message_of([&] { gather(*communicator, "layers.3"); });
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(1));
  expect_text(message, "rank " + std::to_string(c.world_size - 1) + " (pid " +
                           std::to_string(victim) + ") died");
  expect_text(message, "waiting in all_gather 'layers.3'");
  // The communicator stays broken, and says so at once.
  expect_text(message_of([&] { communicator->barrier("later"); }), "died");
});

TEST(ShmFailure, DeadPeerIsNamedWithinASecond) {
  for (const int world_size : {2, 3}) {
    const auto results = run_ranks(
        kDies, world_size, {}, std::chrono::seconds(60), milliseconds(20'000));
    for (int rank = 0; rank + 1 < world_size; ++rank) {
      const RankResult& result = results[static_cast<std::size_t>(rank)];
      EXPECT_EQ(result.exit_code, 0) << result.output;
    }
  }
}

void with_ranks(int world_size, milliseconds timeout,
                const std::function<void(Communicator&)>& body) {
  auto ranks = make_local_shm_group(world_size, timeout);
  run_threads(ranks, body);
}

TEST(ShmFailure, OtherLabelIsADisagreement) {
  for (const int world_size : {2, 3}) {
    with_ranks(world_size, milliseconds(30'000), [](Communicator& rank) {
      const bool odd = rank.rank() == 1;
      const std::string message = message_of(
          [&] { gather(rank, odd ? "layers.4" : "layers.3", 1000); });
      expect_text(message, "ranks disagree");
      expect_text(message, "rank 1 called all_gather 'layers.4'");
      expect_text(message, "called all_gather 'layers.3'");
    });
  }
}

TEST(ShmFailure, OtherSizeIsADisagreement) {
  with_ranks(2, milliseconds(30'000), [](Communicator& rank) {
    const std::string message =
        message_of([&] { gather(rank, "layers.3", 4 + rank.rank()); });
    expect_text(message, "rank 0 called all_gather 'layers.3' (32 bytes");
    expect_text(message, "rank 1 called all_gather 'layers.3' (40 bytes");
  });
}

TEST(ShmFailure, OtherShapeOfTheSameSizeIsADisagreement) {
  with_ranks(2, milliseconds(30'000), [](Communicator& rank) {
    const std::string message = message_of([&] {
      std::vector<double> full(4);
      const bool wide = rank.rank() == 0;
      const DType dtype = wide ? DType::Float64 : DType::Float32;
      const GatherPart part = {full.data(), dtype, full.data(), dtype,
                               wide ? 1 : 2};
      rank.all_gather_into({&part, 1}, nullptr, "layers.3").wait();
    });
    expect_text(message, "with other element counts");
  });
}

// Rank 0 is in one operation, rank 1 in another: neither will ever arrive.
TEST(ShmFailure, OtherOperationIsADisagreementOnBothSides) {
  for (const int world_size : {2, 3}) {
    with_ranks(world_size, milliseconds(60'000), [](Communicator& rank) {
      const auto start = Clock::now();
      const std::string message = message_of([&] {
        rank.rank() == 0 ? gather(rank, "layers.3") : reduce(rank, "layers.9");
      });
      EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
      expect_text(message, "ranks disagree");
      expect_text(message, "rank 0 called all_gather 'layers.3'");
      expect_text(message, "called reduce_scatter 'layers.9'");
    });
  }
}

// Rank 0 runs ahead by two calls that do not need rank 1 to be complete, and
// rank 1 is slow: late is not wrong.
TEST(ShmFailure, SlowRankIsNoDisagreement) {
  with_ranks(2, milliseconds(30'000), [](Communicator& rank) {
    if (rank.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(400));
    }
    gather(rank, "a");
    if (rank.rank() == 0) {
      std::this_thread::sleep_for(milliseconds(400));
    }
    reduce(rank, "b");
  });
}

TEST(ShmFailure, LateRankIsNamedWithWhatItDidLast) {
  with_ranks(3, milliseconds(400), [](Communicator& rank) {
    gather(rank, "layers.2");
    if (rank.rank() == 2) {
      std::this_thread::sleep_for(milliseconds(1500));
      return;
    }
    const std::string message = message_of([&] { gather(rank, "layers.3"); });
    if (message.find("failed") == std::string::npos) {
      expect_text(message, "all_gather 'layers.3' (call 2 of its kind) timed");
      expect_text(message, "400 ms passed");
    }
    expect_text(message, "rank 2 (pid");
    expect_text(message, "last called all_gather 'layers.2'");
  });
}

TEST(ShmFailure, RankThatLeavesIsNamed) {
  auto ranks = make_local_shm_group(2, milliseconds(30'000));
  ranks[1].reset();
  expect_text(message_of([&] { ranks[0]->barrier("end"); }),
              "closed its communicator");
}

TEST(ShmFailure, MissingRankIsNamedAtStart) {
  expect_text(message_of([] {
                connect_shm({.rank = 0,
                             .world_size = 3,
                             .name = "nobody-" + std::to_string(getpid()),
                             .timeout = milliseconds(200)});
              }),
              "waited 200 ms for ranks 1 and 2 to start");
  expect_text(message_of([] {
                connect_shm({.rank = 2,
                             .world_size = 3,
                             .name = "nobody-" + std::to_string(getpid()),
                             .timeout = milliseconds(200)});
              }),
              "rank 2 of 3 waited 200 ms for rank 0 to start");
}

const RankProgram kTwins("shm_twins", [](const RankContext& c) {
  const auto connect_as = [&](int rank) {
    connect_shm({.rank = rank,
                 .world_size = 3,
                 .name = c.session,
                 .timeout = milliseconds(10'000)});
  };
  if (c.rank == 0) {
    expect_text(message_of([&] { connect_as(0); }),
                "two processes say that they are rank 1 of 3");
  } else {
    expect_text(message_of([&] { connect_as(1); }), "closed the connection");
  }
});

TEST(ShmFailure, TwoProcessesOfOneRankAreAnError) {
  expect_ranks_pass(kTwins, 3);
}

TEST(ShmFailure, RankOutsideTheWorldIsAnError) {
  expect_text(message_of([] {
                connect_shm({.rank = 2, .world_size = 2, .name = "x"});
              }),
              "rank 2 of 2");
}

// Both ranks get the error, and can go on with less.
TEST(ShmFailure, MoreMemoryThanThereIsIsAnErrorThatNamesTheBytes) {
  with_ranks(2, milliseconds(30'000), [](Communicator& rank) {
    const std::string message = message_of(
        [&] { (void)rank.allocate_exported(std::int64_t{1} << 50, "slots"); });
    expect_text(message, "cannot allocate 2251799813685248 bytes");
    expect_text(message, "'slots'");
    expect_text(message, "bytes available");
    EXPECT_EQ(rank.allocate_common(100, "small")->bytes(), 100);
    gather(rank, "still works");
  });
}

const RankProgram kFileLimit("shm_file_limit", [](const RankContext& c) {
  const auto communicator = connect(c, milliseconds(20'000));
  if (c.rank == 1) {
    const rlimit limit = {1 << 20, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  const std::string message = message_of(
      [&] { (void)communicator->allocate_exported(2 << 20, "slots"); });
  expect_text(message, "cannot allocate 2097152 bytes");
  expect_text(message, "ulimit -f) is 1048576 bytes");
  expect_text(message, "(rank 1 of 2)");
  EXPECT_EQ(communicator->allocate_exported(1 << 20, "less")->bytes(), 1 << 20);
});

TEST(ShmFailure, CacheLargerThanWhatIsUsedLeavesTheWholeLimit) {
  // Version 1 of control groups says "no limit" as the largest number there is.
  constexpr auto kUnlimited = std::numeric_limits<std::int64_t>::max() - 4095;
  EXPECT_EQ(detail::bytes_left(kUnlimited, 1000, 1001), kUnlimited);
  EXPECT_EQ(detail::bytes_left(5000, 1000, 400), 4400);
  EXPECT_EQ(detail::bytes_left(5000, 6000, 400), 0);
}

TEST(ShmFailure, LimitOfOneRankIsAnErrorOnAll) {
  expect_ranks_pass(kFileLimit, 2);
}

std::string read_file(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::size_t count_files(const char* folder) {
  const std::filesystem::directory_iterator files(folder);
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

const RankProgram kKilledInTheMiddle("shm_killed", [](const RankContext& c) {
  const auto communicator = connect(c, milliseconds(20'000));
  const auto common = communicator->allocate_common(1 << 20, "common");
  const auto exported = communicator->allocate_exported(1 << 20, "exported");
  communicator->barrier("everything is set up");
  std::raise(SIGKILL);
});

TEST(ShmFailure, KilledRanksLeaveNothingBehind) {
  const std::size_t files = count_files("/dev/shm");
  const std::string socket = "accordion-" + std::to_string(getuid()) + "-";
  for (const RankResult& result : run_ranks(kKilledInTheMiddle, 2)) {
    EXPECT_EQ(result.signal, SIGKILL) << result.output;
  }
  EXPECT_EQ(count_files("/dev/shm"), files);
  // Other tests may be using sockets now, but then they come and go.
  for (int attempt = 0; attempt < 100; ++attempt) {
    if (read_file("/proc/net/unix").find(socket) == std::string::npos) {
      return;
    }
    std::this_thread::sleep_for(milliseconds(100));
  }
  ADD_FAILURE() << "sockets are left:\n" << read_file("/proc/net/unix");
}

}  // namespace
}  // namespace accordion::testing
