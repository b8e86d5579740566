// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/stop_signal.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include <gtest/gtest.h>

namespace accordion {
namespace {

int handled = 0;

TEST(StopSignal, FirstSignalOnlyRaisesTheFlag) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const StopSignal stop;
    EXPECT_FALSE(stop.raised());
    std::raise(signal);
    EXPECT_TRUE(stop.raised());
  }
}

TEST(StopSignal, FormerHandlersComeBack) {
  handled = 0;
  std::signal(SIGTERM, [](int) { ++handled; });
  {
    const StopSignal stop;
    std::raise(SIGTERM);
    EXPECT_EQ(handled, 0);
  }
  std::raise(SIGTERM);
  std::signal(SIGTERM, SIG_DFL);
  EXPECT_EQ(handled, 1);
}

TEST(StopSignal, AnotherSenderSaysTheSameOnceMore) {
  const StopSignal stop;
  ASSERT_EQ(std::system("kill -TERM $PPID"), 0);
  ASSERT_EQ(std::system("kill -TERM $PPID"), 0);
  // What another process sends arrives when the system likes, under the thread
  // sanitizer not before the next call that blocks.
  for (int i = 0; i < 5000 && !stop.raised(); ++i) {
    ::usleep(1000);
  }
  EXPECT_TRUE(stop.raised());
}

TEST(StopSignalDeathTest, SecondSignalOfASenderEndsTheProcess) {
  EXPECT_EXIT(
      {
        const StopSignal stop;
        std::raise(SIGINT);
        std::raise(SIGINT);
      },
      ::testing::KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace accordion
