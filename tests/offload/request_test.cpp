// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/offload/request.h"

#include <pthread.h>

#include <cerrno>
#include <csignal>

#include "tests/offload/offload_support.h"

namespace accordion::detail {
namespace {

using accordion::testing::AlignedBytes;

constexpr std::int64_t kPage = kOffloadAlignment;

struct Advanced {
  Progress progress;
  std::int64_t offset;
  std::size_t bytes_left;
  int error;
  bool operator==(const Advanced&) const = default;
};

/// A request for 3 pages from page 10 on, once the kernel answered.
Advanced after(std::int64_t result) {
  const AlignedBytes memory(3 * kPage);
  Request request = {Direction::Read, 0, 10 * kPage, memory.get()};
  int error = 0;
  const Progress progress = advance(request, result, error);
  EXPECT_EQ(request.memory.data() + request.memory.size(),
            memory.get().data() + memory.get().size());
  return {progress, request.offset, request.memory.size(), error};
}

TEST(Request, IsDoneWithAllItsBytes) {
  EXPECT_EQ(after(3 * kPage), (Advanced{Progress::Done, 10 * kPage, 12288, 0}));
}

TEST(Request, GoesOnWhereTheKernelStopped) {
  EXPECT_EQ(after(kPage), (Advanced{Progress::Again, 11 * kPage, 8192, 0}));
  EXPECT_EQ(after(2 * kPage), (Advanced{Progress::Again, 12 * kPage, 4096, 0}));
}

TEST(Request, RepeatsThePageInWhichTheKernelStopped) {
  EXPECT_EQ(after(kPage + 512),
            (Advanced{Progress::Again, 11 * kPage, 8192, 0}));
}

TEST(Request, IsRepeatedWholeAfterASignalOrLackOfResources) {
  for (const int error : {EINTR, EAGAIN}) {
    EXPECT_EQ(after(-error), (Advanced{Progress::Again, 10 * kPage, 12288, 0}));
  }
}

TEST(Request, FailsWithTheKernelsError) {
  EXPECT_EQ(after(-ENOSPC),
            (Advanced{Progress::Failed, 10 * kPage, 12288, ENOSPC}));
}

TEST(Request, FailsWhereNothingMoves) {
  EXPECT_EQ(after(0), (Advanced{Progress::Failed, 10 * kPage, 12288, EIO}));
  EXPECT_EQ(after(512), (Advanced{Progress::Failed, 10 * kPage, 12288, EIO}));
}

TEST(RequestQueue, HandsOutReadsFirstAndEachKindInOrder) {
  RequestQueue queue;
  const Request requests[] = {{.direction = Direction::Write, .block = 0},
                              {.direction = Direction::Read, .block = 1},
                              {.direction = Direction::Write, .block = 2},
                              {.direction = Direction::Read, .block = 3}};
  queue.push(requests);
  std::vector<int> blocks;
  while (const auto request = queue.pop()) {
    blocks.push_back(request->block);
  }
  EXPECT_THAT(blocks, ::testing::ElementsAre(1, 3, 0, 2));
}

TEST(RequestQueue, ForgetsWhatIsQueuedOnceItIsClosed) {
  RequestQueue queue;
  const Request request;
  queue.push({&request, 1});
  EXPECT_FALSE(queue.closed());
  queue.close();
  EXPECT_TRUE(queue.closed());
  EXPECT_FALSE(queue.pop());
  EXPECT_FALSE(queue.wait_and_pop());
}

TEST(IoThread, IsNotInterruptedBySignals) {
  sigset_t before;
  sigset_t inside;
  sigset_t after;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
  start_io_thread([&] {
    ::pthread_sigmask(SIG_SETMASK, nullptr, &inside);
  }).join();
  ::pthread_sigmask(SIG_SETMASK, nullptr, &after);
  EXPECT_EQ(::sigismember(&inside, SIGINT), 1);
  EXPECT_EQ(::sigismember(&after, SIGINT), ::sigismember(&before, SIGINT));
}

}  // namespace
}  // namespace accordion::detail
