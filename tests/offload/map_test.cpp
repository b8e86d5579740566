// SPDX-License-Identifier: BSD-3-Clause
// Blocks seen through the store's own memory.
#include <stdexcept>

#include "accordion/offload/host_store.h"
#include "accordion/offload/staged_blocks.h"
#include "tests/offload/offload_support.h"
#include "tests/support/temporary_folder.h"

namespace accordion::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kBytes = 3 * kOffloadAlignment;
constexpr int kBlocks = 5;
const std::vector<std::int64_t> kSizes(kBlocks, kBytes);

std::span<std::byte> part(const std::shared_ptr<std::byte>& mapped, int index) {
  return {mapped.get() + index * kBytes, static_cast<std::size_t>(kBytes)};
}

/// Calls `check` with stores of each kind that can be had here.
template <class Check>
void for_each_store(const Check& check) {
  HostPool pool(kBlocks * kBytes);
  {
    SCOPED_TRACE("host");
    check(make_host_store(kSizes, pool));
  }
  const TemporaryFolder folder;
  for (const NvmeKind& kind : kNvmeKinds) {
    SCOPED_TRACE(kind.name);
    if (why_not(kind, folder.path()).empty()) {
      check(make_nvme_store({.folder = folder.path(),
                             .block_bytes = kSizes,
                             .io = kind.io,
                             .direct = kind.direct}));
    }
  }
}

TEST(Map, ShowsWhatWasWrittenAndKeepsWhatIsWrittenThere) {
  for_each_store([](std::unique_ptr<OffloadStore> store) {
    StagedBlocks blocks(std::move(store), kSizes, 3);
    for (int block = 0; block < 4; ++block) {
      fill(blocks.acquire(block), block, 1);
      blocks.release(block, Use::Changed);
    }
    {
      const auto mapped = blocks.map(1, 5);
      for (int block = 1; block < 4; ++block) {
        expect_version(part(mapped, block - 1), block, 1);
      }
      expect_version(part(mapped, 3), 4, 0);
      fill(part(mapped, 2), 3, 2);
      fill(part(mapped, 3), 4, 2);
    }
    for (int block = 0; block < kBlocks; ++block) {
      expect_version(blocks.acquire(block), block, block < 3 ? 1 : 2);
      blocks.release(block, Use::Unchanged);
    }
  });
}

TEST(TransferSpans, AreThoseOfTransfersThatEndedWhileRecorded) {
  for_each_store([](std::unique_ptr<OffloadStore> store) {
    StagedBlocks blocks(std::move(store), kSizes, 1);
    const auto write = [&](int block) {
      (void)blocks.acquire(block);
      blocks.release(block, Use::Changed);
      blocks.flush();
    };
    write(0);
    EXPECT_TRUE(blocks.take_transfers().empty());
    blocks.record_transfers(true);
    write(1);
    (void)blocks.acquire(0);  // one buffer: read again
    blocks.release(0, Use::Unchanged);
    const std::vector<TransferSpan> spans = blocks.take_transfers();
    ASSERT_EQ(spans.size(), 2U);
    EXPECT_TRUE(spans[0].is_write);
    EXPECT_EQ(spans[0].block, 1);
    EXPECT_FALSE(spans[1].is_write);
    EXPECT_EQ(spans[1].block, 0);
    for (const TransferSpan& span : spans) {
      EXPECT_EQ(span.bytes, kBytes);
      EXPECT_LT(span.begin_ns, span.end_ns);
    }
    EXPECT_LE(spans[0].end_ns, spans[1].begin_ns);
    write(2);
    blocks.record_transfers(false);
    write(3);
    const std::vector<TransferSpan> rest = blocks.take_transfers();
    ASSERT_EQ(rest.size(), 1U) << "there after recording ended";
    EXPECT_EQ(rest[0].block, 2);
  });
}

TEST(Map, OutlivesTheStore) {
  for_each_store([](std::unique_ptr<OffloadStore> store) {
    std::shared_ptr<std::byte> mapped;
    {
      StagedBlocks blocks(std::move(store), kSizes, 2);
      fill(blocks.acquire(2), 2, 1);
      blocks.release(2, Use::Changed);
      mapped = blocks.map(2, 3);
    }
    expect_version(part(mapped, 0), 2, 1);
  });
}

TEST(Map, OfABlockThatIsHeldIsAnError) {
  for_each_store([](std::unique_ptr<OffloadStore> store) {
    StagedBlocks blocks(std::move(store), kSizes, 2);
    (void)blocks.acquire(3);
    EXPECT_THAT(message_of<std::logic_error>([&] { blocks.map(2, 5); }),
                HasSubstr("block 3 is held, and to be seen"));
    EXPECT_THAT(message_of<std::logic_error>([&] { blocks.map(4, 6); }),
                HasSubstr("there is no block 5"));
  });
}

}  // namespace
}  // namespace accordion::testing
