// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/offload/paged_arrays.h"

#include <stdexcept>
#include <vector>

#include "tests/offload/offload_support.h"
#include "tests/support/temporary_folder.h"

namespace accordion::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kBlock = 2 * kOffloadAlignment;

/// Calls `check` with targets of each kind, of three buffers of kBlock.
template <class Check>
void for_each_target(const Check& check) {
  const auto small = [](OffloadTarget target) {
    target.block_bytes = kBlock;
    target.buffers = 3;
    target.share = 1;
    return target;
  };
  HostPool pool(1 << 20);
  {
    SCOPED_TRACE("host");
    check(small(offload_to_host(pool)));
  }
  const TemporaryFolder folder;
  for (const NvmeKind& kind : kNvmeKinds) {
    SCOPED_TRACE(kind.name);
    if (!why_not(kind, folder.path()).empty()) {
      continue;
    }
    OffloadTarget target;
    target.make_store = [&](const std::vector<std::int64_t>& block_bytes) {
      return make_nvme_store({.folder = folder.path(),
                              .block_bytes = block_bytes,
                              .io = kind.io,
                              .direct = kind.direct});
    };
    check(small(target));
  }
}

std::vector<std::byte> version_of(std::int64_t bytes, int array, int version) {
  std::vector<std::byte> memory(static_cast<std::size_t>(bytes));
  fill(std::span(memory), array, version);
  return memory;
}

void expect_array(PagedArrays& arrays, int array, int version) {
  std::vector<std::byte> memory(
      static_cast<std::size_t>(arrays.array_bytes(array)));
  arrays.read(array, memory);
  expect_version(std::span<const std::byte>(memory), array, version);
}

TEST(PagedArrays, HoldWhatWasWrittenToArraysOfAnySize) {
  for_each_target([](const OffloadTarget& target) {
    PagedArrays arrays(target, "test");
    for (const std::int64_t bytes :
         {std::int64_t{1}, kBlock, 5 * kBlock + 100, std::int64_t{0}}) {
      const int array = arrays.add(bytes);
      expect_array(arrays, array, 0);  // zeros at first
      arrays.write(array, version_of(bytes, array, 1));
    }
    EXPECT_EQ(arrays.num_blocks(2), 6);
    for (int array = 0; array < arrays.num_arrays(); ++array) {
      expect_array(arrays, array, 1);
    }
    EXPECT_EQ(arrays.blocks().buffer_bytes(), 3 * kBlock);
  });
}

TEST(PagedArrays, BuffersAreNoLargerThanWhatIsThereAtOnceNeeds) {
  HostPool pool(1 << 22);
  OffloadTarget target = offload_to_host(pool);
  const PagedArrays small(target, "test", {100, 3000});
  EXPECT_EQ(small.blocks().buffer_bytes(), 2 * kOffloadAlignment);
  target.block_bytes = kBlock;
  const PagedArrays many(target, "test",
                         std::vector<std::int64_t>(40, 3 * kBlock));
  EXPECT_EQ(many.blocks().buffer_bytes(), target.buffer_bytes());
  const PagedArrays few(target, "test",
                        std::vector<std::int64_t>(8, 3 * kBlock));
  EXPECT_EQ(few.blocks().buffer_bytes(), 8 * kOffloadAlignment)
      << "smaller blocks";
}

TEST(PagedArrays, BuffersTakeAPartOfWhatIsOffloaded) {
  for (const std::int64_t bytes : {5000, 100000, 3000000, 20000000}) {
    for (const int arrays : {2, 3, 17, 30}) {
      SCOPED_TRACE(std::to_string(arrays) + " of " + std::to_string(bytes));
      HostPool pool(std::int64_t{1} << 32);
      const OffloadTarget target = offload_to_host(pool);
      const std::vector<std::int64_t> all(static_cast<std::size_t>(arrays),
                                          bytes);
      const PagedArrays known(target, "test", all);
      PagedArrays grown(target, "test");
      PagedArrays fitted(target.fitted_to(all), "test");
      for (const std::int64_t one : all) {
        (void)grown.add(one);
        (void)fitted.add(one);
      }
      const std::int64_t offloaded = arrays * offload_aligned(bytes);
      const std::int64_t held = known.blocks().buffer_bytes();
      EXPECT_LE(held, target.buffer_bytes());
      EXPECT_LE(held, std::max(offloaded / 4 + known.block_bytes(),
                               2 * known.block_bytes()));
      EXPECT_LE(grown.blocks().buffer_bytes(), offloaded);
      EXPECT_EQ(held, fitted.blocks().buffer_bytes());
      EXPECT_EQ(held, target.fitted_to(all).buffer_bytes());
    }
  }
}

TEST(PagedArrays, ArraysOutliveTheGrowthOfBuffers) {
  for_each_target([](const OffloadTarget& target) {
    PagedArrays arrays(target, "test");
    for (int array = 0; array < 4; ++array) {
      const std::int64_t bytes = 1000 + array * kOffloadAlignment;
      (void)arrays.add(bytes);
      arrays.write(array, version_of(bytes, array, 1));
    }
    const HeldBlock held(arrays.blocks(), 0, arrays.blocks().acquire(0));
    (void)arrays.add(100);  // of what buffers have room for
    for (int array = 0; array < 4; ++array) {
      if (array != 0) {
        expect_array(arrays, array, 1);
      }
    }
  });
}

TEST(PagedArrays, MappingsAndBuffersShowTheSameAfterEachUse) {
  for_each_target([](const OffloadTarget& target) {
    PagedArrays arrays(target, "test");
    constexpr std::int64_t kBytes = 3 * kBlock + 24;
    const int array = arrays.add(kBytes);
    const int other = arrays.add(kBytes);
    const std::span<std::byte> mapped(arrays.map(array),
                                      static_cast<std::size_t>(kBytes));
    (void)arrays.map(other);
    for (int version = 1; version < 8; version += 2) {
      fill(mapped, array, version);
      PagedArrays::BufferedUse use(arrays);
      expect_array(arrays, array, version);
      {
        PagedArrays::BufferedUse inner(arrays);  // keeps buffers
        arrays.write(array, version_of(kBytes, array, version + 1));
      }
      arrays.write(other, version_of(kBytes, other, version));
      expect_array(arrays, array, version + 1);
      use.close();
      expect_version(std::span<const std::byte>(mapped), array, version + 1);
      arrays.page_out();
      expect_version(std::span<const std::byte>(mapped), array, version + 1);
    }
  });
}

TEST(PagedArrays, ForgetSeesWhatWasWrittenToAMappingInsideAUse) {
  for_each_target([](const OffloadTarget& target) {
    PagedArrays arrays(target, "test");
    const int array = arrays.add(kBlock);
    const std::span<std::byte> mapped(arrays.map(array),
                                      static_cast<std::size_t>(kBlock));
    const PagedArrays::BufferedUse use(arrays);
    arrays.write(array, version_of(kBlock, array, 1));
    arrays.forget(array);
    expect_version(std::span<const std::byte>(mapped), array, 1);
    fill(mapped, array, 2);
    expect_array(arrays, array, 2);
  });
}

TEST(PagedArrays, PrefetchPromisesNoMoreBuffersThanItMay) {
  for_each_target([](const OffloadTarget& target) {
    PagedArrays arrays(target, "test");
    const int array = arrays.add(4 * kBlock);
    arrays.write(array, version_of(4 * kBlock, array, 1));
    arrays.forget(array);
    EXPECT_FALSE(arrays.prefetch(array, 2));
    EXPECT_EQ(arrays.blocks().num_promised(), 2);
    expect_array(arrays, array, 1);
    EXPECT_EQ(arrays.blocks().num_promised(), 0);
  });
}

TEST(PagedArrays, OverwritingReadsNothing) {
  for_each_target([](const OffloadTarget& target) {
    PagedArrays arrays(target, "test");
    const int array = arrays.add(4 * kBlock);
    for (int version = 1; version < 4; ++version) {
      arrays.write(array, version_of(4 * kBlock, array, version));
    }
    EXPECT_EQ(arrays.blocks().counters().bytes_read, 0);
    EXPECT_EQ(arrays.blocks().counters().bytes_written, 12 * kBlock);
    expect_array(arrays, array, 3);
  });
}

TEST(PagedArrays, WhatDoesNotFitIsAnErrorAndLeavesTheRest) {
  HostPool pool(4 * kBlock);
  OffloadTarget target = offload_to_host(pool);
  target.block_bytes = kBlock;
  PagedArrays arrays(target, "test");
  const int array = arrays.add(3 * kBlock);
  EXPECT_THAT(message_of<OffloadError>([&] { (void)arrays.add(2 * kBlock); }),
              HasSubstr("raise the limit of the pool"));
  EXPECT_EQ(arrays.num_arrays(), 1);
  arrays.write(array, version_of(3 * kBlock, array, 1));
  expect_array(arrays, array, 1);
  const int last = arrays.add(kBlock);
  arrays.write(last, version_of(kBlock, last, 1));
  expect_array(arrays, last, 1);
}

TEST(PagedArrays, AFileThatMayNotGrowIsAnErrorThatNamesIt) {
  const TemporaryFolder folder;
  OffloadTarget target = offload_to_nvme(folder.path());
  target.block_bytes = kBlock;
  PagedArrays arrays(target, "test");
  (void)arrays.add(kBlock);
  const FileSizeLimit limit(2 * kBlock);
  EXPECT_THAT(message_of<OffloadError>([&] { (void)arrays.add(2 * kBlock); }),
              HasSubstr("a scratch file of 24576 bytes in '" +
                        folder.path().string() + "' cannot be reserved"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(PagedArrays, SizesOutOfRangeAreNamed) {
  HostPool pool(1 << 20);
  const auto error_with = [&](std::int64_t block_bytes, int buffers) {
    OffloadTarget target = offload_to_host(pool);
    target.block_bytes = block_bytes;
    target.buffers = buffers;
    return message_of<std::invalid_argument>(
        [&] { const PagedArrays arrays(target, "test"); });
  };
  EXPECT_THAT(error_with(1000, 8),
              HasSubstr("[test] offload.block_bytes is 1000; give a multiple "
                        "of 4096"));
  EXPECT_THAT(error_with(4096, 1), HasSubstr("[test] offload.buffers is 1"));
  EXPECT_THAT(message_of<std::invalid_argument>(
                  [] { const PagedArrays arrays(OffloadTarget(), "test"); }),
              HasSubstr("[test] offload.make_store is empty"));
}

TEST(BlockOrder, ReadsAheadInTheOrderOfTheTimeBefore) {
  HostPool pool(1 << 20);
  OffloadTarget target = offload_to_host(pool);
  target.block_bytes = kBlock;
  target.buffers = 3;
  PagedArrays arrays(target, "test");
  const int array = arrays.add(6 * kBlock);
  arrays.write(array, version_of(6 * kBlock, array, 1));
  BlockOrder order;
  for (int time = 0; time < 3; ++time) {
    for (const int block : {4, 0, 3, 1, 5, 2}) {
      (void)order.acquire(arrays.blocks(), block);
      arrays.blocks().release(block, Use::Unchanged);
    }
  }
  const OffloadCounters counters = arrays.blocks().counters();
  // All but those of the first time that had no buffer, and the one after it.
  EXPECT_GE(counters.reads_in_time, counters.reads - 7);
}

}  // namespace
}  // namespace accordion::testing
