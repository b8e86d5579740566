// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/offload/transfers.h"

#include <cerrno>
#include <thread>

#include "tests/offload/offload_support.h"

namespace accordion::detail {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;

const Request kPieces[] = {{.block = 1, .offset = 0},
                           {.block = 1, .offset = 4096}};

TEST(Transfers, AreUnderWayUntilTheirLastRequest) {
  Transfers transfers(2);
  EXPECT_FALSE(transfers.in_flight(1));
  transfers.begin(1, Direction::Write, 2, 8192);
  transfers.finish(kPieces[1], 0);
  EXPECT_TRUE(transfers.in_flight(1));
  EXPECT_FALSE(transfers.in_flight(0));
  transfers.finish(kPieces[0], 0);
  EXPECT_FALSE(transfers.in_flight(1));
  EXPECT_EQ(transfers.wait(1, minutes(1)).error, 0);
}

TEST(Transfers, WaitReturnsWhenTheTimeIsOver) {
  Transfers transfers(2);
  transfers.begin(1, Direction::Write, 2, 8192);
  const TransferState state = transfers.wait(1, milliseconds(1));
  EXPECT_EQ(state.requests_left, 2);
  EXPECT_EQ(state.direction, Direction::Write);
}

TEST(Transfers, WaitReturnsWhenAnotherThreadFinishes) {
  Transfers transfers(2);
  transfers.begin(1, Direction::Read, 2, 8192);
  std::thread finisher([&] {
    transfers.finish(kPieces[0], 0);
    transfers.finish(kPieces[1], 0);
  });
  EXPECT_EQ(transfers.wait(1, minutes(1)).requests_left, 0);
  finisher.join();
}

TEST(Transfers, KeepTheFirstErrorUntilTheNextOneBegins) {
  Transfers transfers(2);
  transfers.begin(1, Direction::Read, 2, 8192);
  transfers.finish(kPieces[1], EIO);
  transfers.finish(kPieces[0], ENOSPC);
  for (int i = 0; i < 2; ++i) {
    const TransferState state = transfers.wait(1, minutes(1));
    EXPECT_EQ(state.error, EIO);
    EXPECT_EQ(state.error_offset, 4096);
  }
  transfers.begin(1, Direction::Read, 0, 0);
  EXPECT_EQ(transfers.wait(1, minutes(1)).error, 0);
}

TEST(Transfers, CountBytesByDirection) {
  Transfers transfers(2);
  transfers.begin(1, Direction::Write, 2, 8192);
  transfers.begin(0, Direction::Read, 1, 4096);
  EXPECT_EQ(transfers.traffic().bytes_written, 8192);
  EXPECT_EQ(transfers.traffic().bytes_read, 4096);
}

TEST(Transfers, CountTheTimeInWhichAnyIsUnderWayOnce) {
  using Clock = std::chrono::steady_clock;
  Transfers transfers(2);
  EXPECT_EQ(transfers.traffic().seconds_in_flight, 0);
  const auto start = Clock::now();
  transfers.begin(1, Direction::Read, 2, 8192);
  transfers.begin(0, Direction::Read, 1, 4096);
  (void)transfers.wait(0, milliseconds(5));
  transfers.finish({.block = 0}, 0);
  EXPECT_GE(transfers.traffic().seconds_in_flight, 0.005);
  (void)transfers.wait(1, milliseconds(5));
  transfers.finish(kPieces[0], 0);
  transfers.finish(kPieces[1], 0);
  const std::chrono::duration<double> passed = Clock::now() - start;
  const double seconds = transfers.traffic().seconds_in_flight;
  EXPECT_GE(seconds, 0.01);
  EXPECT_LE(seconds, passed.count());
  std::this_thread::sleep_for(milliseconds(2));
  EXPECT_EQ(transfers.traffic().seconds_in_flight, seconds);
}

}  // namespace
}  // namespace accordion::detail
