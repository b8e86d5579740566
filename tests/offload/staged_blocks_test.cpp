// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/offload/staged_blocks.h"

#include <stdexcept>

#include "accordion/offload/host_store.h"
#include "tests/offload/offload_support.h"
#include "tests/offload/played_store.h"

namespace accordion::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Blocks of which those below `written` have their version 1, in the store
/// alone: all buffers have been given to another block since.
class Staged {
 public:
  Staged(int buffers, int written)
      : owned_(std::make_unique<PlayedStore>(kSizes)),
        store(*owned_),
        blocks(std::move(owned_), kSizes, buffers) {
    for (int block = 0; block < written; ++block) {
      write(block, 1);
    }
    for (int buffer = 0; buffer < buffers; ++buffer) {
      (void)blocks.acquire(kLast - buffer);
    }
    for (int buffer = 0; buffer < buffers; ++buffer) {
      blocks.release(kLast - buffer, Use::Unchanged);
    }
    (void)store.take_log();
  }

  void write(int block, int version) {
    fill(blocks.acquire(block), block, version);
    blocks.release(block, Use::Changed);
  }

  void expect(int block, int version) {
    expect_version(blocks.acquire(block), block, version);
    blocks.release(block, Use::Unchanged);
  }

 private:
  static inline const std::vector<std::int64_t> kSizes = {5000, 1, 4096, 9000,
                                                          0,    3, 70,   80};
  static constexpr int kLast = 7;
  std::unique_ptr<PlayedStore> owned_;

 public:
  PlayedStore& store;
  StagedBlocks blocks;
};

TEST(StagedBlocks, BlockThatWasNeverWrittenIsZerosWithoutARead) {
  Staged staged(1, 1);
  staged.expect(0, 1);  // the buffer is not zeros
  (void)staged.store.take_log();
  EXPECT_TRUE(staged.blocks.prefetch(3));
  staged.expect(3, 0);
  EXPECT_THAT(staged.store.take_log(), IsEmpty());
}

TEST(StagedBlocks, AcquireHasTheSizeOfTheBlock) {
  Staged staged(2, 0);
  EXPECT_EQ(staged.blocks.acquire(0).size(), 5000U);
  EXPECT_EQ(staged.blocks.acquire(4).size(), 0U);
}

TEST(StagedBlocks, AcquireReadsWhatWasNotPrefetched) {
  Staged staged(2, 3);
  staged.expect(2, 1);
  EXPECT_THAT(staged.store.take_log(), ElementsAre("read 2", "wait 2"));
}

TEST(StagedBlocks, PrefetchBeginsTheReadAndAcquireWaitsForIt) {
  Staged staged(2, 3);
  EXPECT_TRUE(staged.blocks.prefetch(2));
  EXPECT_TRUE(staged.blocks.prefetch(2));
  EXPECT_THAT(staged.store.take_log(), ElementsAre("read 2"));
  staged.expect(2, 1);
  EXPECT_THAT(staged.store.take_log(), ElementsAre("wait 2"));
}

TEST(StagedBlocks, PrefetchDoesNothingWhereEveryBufferIsInUse) {
  Staged staged(3, 4);
  (void)staged.blocks.acquire(0);
  EXPECT_TRUE(staged.blocks.prefetch(1));
  staged.write(2, 2);
  (void)staged.store.take_log();
  EXPECT_FALSE(staged.blocks.prefetch(3));
  EXPECT_THAT(staged.store.take_log(), IsEmpty());

  staged.store.finish(2);  // its write; the buffer can be had without waiting
  EXPECT_TRUE(staged.blocks.prefetch(3));
  EXPECT_THAT(staged.store.take_log(), ElementsAre("read 3"));
}

TEST(StagedBlocks, PrefetchedBlockKeepsItsBufferUntilItIsAcquired) {
  Staged staged(2, 4);
  staged.expect(0, 1);
  EXPECT_TRUE(staged.blocks.prefetch(0));  // which is there still
  EXPECT_TRUE(staged.blocks.prefetch(1));
  EXPECT_FALSE(staged.blocks.prefetch(2));
  (void)staged.store.take_log();
  staged.expect(0, 1);
  EXPECT_THAT(staged.store.take_log(), IsEmpty());
}

TEST(StagedBlocks, BlockThatStillHasItsBufferIsNotReadAgain) {
  Staged staged(2, 2);
  staged.expect(0, 1);
  staged.expect(1, 1);
  (void)staged.store.take_log();
  staged.expect(0, 1);
  staged.expect(1, 1);
  EXPECT_THAT(staged.store.take_log(), IsEmpty());
}

TEST(StagedBlocks, BlockThatWasUsedLongestAgoGivesUpItsBuffer) {
  Staged staged(2, 3);
  staged.expect(0, 1);
  staged.expect(1, 1);
  staged.expect(0, 1);
  staged.expect(2, 1);
  (void)staged.store.take_log();
  staged.expect(0, 1);
  EXPECT_THAT(staged.store.take_log(), IsEmpty());
}

TEST(StagedBlocks, ChangedBlockIsWrittenBehind) {
  Staged staged(2, 1);
  staged.write(0, 2);
  EXPECT_THAT(staged.store.take_log(),
              ElementsAre("read 0", "wait 0", "write 0"));
}

TEST(StagedBlocks, BlockThatIsBeingWrittenIsNotReadFromTheStore) {
  Staged staged(2, 1);
  staged.write(0, 2);
  (void)staged.store.take_log();
  EXPECT_TRUE(staged.blocks.prefetch(0));
  EXPECT_THAT(staged.store.take_log(), IsEmpty());
  staged.expect(0, 2);
  // Its holder may change it, which the transfer must not see.
  EXPECT_THAT(staged.store.take_log(), ElementsAre("wait 0"));
}

TEST(StagedBlocks, AcquireWaitsForTheWriteThatBeganFirst) {
  Staged staged(2, 3);
  staged.write(1, 2);
  staged.write(0, 2);
  (void)staged.store.take_log();
  staged.expect(2, 1);
  EXPECT_THAT(staged.store.take_log(),
              ElementsAre("wait 1", "read 2", "wait 2"));
  staged.expect(1, 2);
}

TEST(StagedBlocks, AcquireGivesUpWhatWasPrefetchedLast) {
  Staged staged(2, 3);
  EXPECT_TRUE(staged.blocks.prefetch(0));
  EXPECT_TRUE(staged.blocks.prefetch(1));
  (void)staged.store.take_log();
  staged.expect(2, 1);
  EXPECT_THAT(staged.store.take_log(),
              ElementsAre("wait 1", "read 2", "wait 2"));
  staged.expect(0, 1);
  staged.expect(1, 1);
}

TEST(StagedBlocks, AcquireWaitsForAWriteBeforeItGivesUpAPrefetch) {
  Staged staged(2, 3);
  staged.write(0, 2);
  EXPECT_TRUE(staged.blocks.prefetch(1));
  (void)staged.store.take_log();
  staged.expect(2, 1);
  EXPECT_THAT(staged.store.take_log(),
              ElementsAre("wait 0", "read 2", "wait 2"));
}

TEST(StagedBlocks, FlushWaitsForEveryWrite) {
  Staged staged(3, 3);
  staged.write(0, 2);
  staged.write(1, 2);
  EXPECT_TRUE(staged.blocks.prefetch(2));
  (void)staged.store.take_log();
  staged.blocks.flush();
  EXPECT_THAT(staged.store.take_log(), ElementsAre("wait 0", "wait 1"));
  staged.blocks.flush();
  EXPECT_THAT(staged.store.take_log(), IsEmpty());
}

TEST(StagedBlocks, TransfersEndBeforeTheMemoryIsGone) {
  Staged staged(2, 2);
  EXPECT_TRUE(staged.blocks.prefetch(0));
  staged.write(1, 2);
}  // the store's destructor moves the bytes

TEST(StagedBlocks, CountReadsAndThoseThatWereInTime) {
  Staged staged(3, 3);
  EXPECT_TRUE(staged.blocks.prefetch(0));
  EXPECT_TRUE(staged.blocks.prefetch(1));
  staged.store.finish(0);
  staged.expect(0, 1);  // in time
  staged.expect(1, 1);  // prefetched, and waited for
  staged.expect(2, 1);  // not prefetched
  staged.expect(2, 1);  // there
  const OffloadCounters counters = staged.blocks.counters();
  EXPECT_EQ(counters.reads, 3);
  EXPECT_EQ(counters.reads_in_time, 1);
  EXPECT_GT(counters.seconds_waited, 0);
  EXPECT_EQ(counters.bytes_read, 1);
  EXPECT_EQ(counters.bytes_written, 2);
  EXPECT_EQ(counters.seconds_in_flight, 3);
}

TEST(StagedBlocks, FailedWriteIsThrownByEveryCallThatNeedsIt) {
  Staged staged(1, 2);
  staged.write(0, 2);
  staged.store.break_block(0);
  const auto calls = {+[](StagedBlocks& blocks) { blocks.flush(); },
                      +[](StagedBlocks& blocks) { (void)blocks.prefetch(1); },
                      +[](StagedBlocks& blocks) { (void)blocks.acquire(1); },
                      +[](StagedBlocks& blocks) { (void)blocks.acquire(0); }};
  for (const auto call : calls) {
    EXPECT_EQ(message_of<OffloadError>([&] { call(staged.blocks); }),
              "block 0 failed");
  }
}

TEST(StagedBlocks, FailedReadIsThrownByAcquire) {
  Staged staged(2, 2);
  EXPECT_TRUE(staged.blocks.prefetch(0));
  staged.store.break_block(0);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW((void)staged.blocks.acquire(0), OffloadError);
  }
  staged.expect(1, 1);
}

TEST(StagedBlocks, EveryBufferHeldIsAnErrorAndNotADeadlock) {
  Staged staged(2, 3);
  (void)staged.blocks.acquire(0);
  (void)staged.blocks.acquire(1);
  EXPECT_THAT(
      message_of<std::logic_error>([&] { (void)staged.blocks.acquire(2); }),
      HasSubstr("[StagedBlocks] all 2 buffers are held by blocks that were "
                "acquired; release one first, or make more buffers."));
  staged.blocks.release(0, Use::Unchanged);
  staged.expect(2, 1);
}

TEST(StagedBlocks, CallsThatDoNotFitEachOtherAreErrors) {
  Staged staged(2, 1);
  (void)staged.blocks.acquire(0);
  EXPECT_THAT(
      message_of<std::logic_error>([&] { (void)staged.blocks.acquire(0); }),
      HasSubstr("block 0 is held already"));
  EXPECT_THAT(message_of<std::logic_error>(
                  [&] { staged.blocks.release(1, Use::Changed); }),
              HasSubstr("block 1 is released and was not acquired"));
  staged.blocks.release(0, Use::Unchanged);
  EXPECT_THROW(staged.blocks.release(0, Use::Unchanged), std::logic_error);
  for (const int block : {-1, 8}) {
    EXPECT_THAT(
        message_of<std::logic_error>([&] { staged.blocks.prefetch(block); }),
        HasSubstr("there is no block " + std::to_string(block) +
                  ": there are 8"));
    EXPECT_THROW((void)staged.blocks.acquire(block), std::logic_error);
    EXPECT_THROW(staged.blocks.release(block, Use::Changed), std::logic_error);
  }
}

TEST(StagedBlocks, SayWhatTheyHold) {
  HostPool pool(1 << 20);
  const std::vector<std::int64_t> sizes = {5000, 4};
  const StagedBlocks blocks(make_host_store(sizes, pool), sizes, 3);
  EXPECT_EQ(blocks.buffer_bytes(), 3 * 8192);
  EXPECT_EQ(blocks.store().held_bytes(), 12288);
  EXPECT_EQ(blocks.describe(),
            "3 buffers of 8192 bytes; copies, 12288 bytes of host memory");
}

TEST(StagedBlocks, NeedABufferAndItsMemory) {
  HostPool pool(1 << 20);
  const std::vector<std::int64_t> sizes = {4096};
  EXPECT_THAT(message_of<std::invalid_argument>([&] {
                const StagedBlocks blocks(make_host_store(sizes, pool), sizes,
                                          0);
              }),
              HasSubstr("[StagedBlocks] 0 buffers; one or more"));
  const std::vector<std::int64_t> huge = {std::int64_t{1} << 46};
  EXPECT_THAT(
      message_of<OffloadError>([&] {
        const StagedBlocks blocks(make_host_store(sizes, pool), huge, 2);
      }),
      AllOf(HasSubstr(
                "70368744177664 bytes are not there for one of 2 buffers of "
                "offloaded blocks"),
            HasSubstr("keep fewer buffers")));
}

}  // namespace
}  // namespace accordion::testing
