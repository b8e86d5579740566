// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/memory_use.h"

#include <sys/mman.h>

#include <cstddef>
#include <cstring>

#include <gtest/gtest.h>

namespace accordion {
namespace {

TEST(MemoryUse, FieldIsReadInMib) {
  constexpr std::string_view kStatus =
      "Name:\tx\nVmRSSx:\t 1 kB\nVmRSS:\t  2048 kB\nPss_Dirty: 7 kB\n";
  EXPECT_DOUBLE_EQ(proc_field_mib(kStatus, "VmRSS"), 2.0);
  EXPECT_DOUBLE_EQ(proc_field_mib(kStatus, "Pss"), 0.0);
  EXPECT_DOUBLE_EQ(proc_field_mib("", "VmRSS"), 0.0);
}

// Mapped by hand: an allocator, or a sanitizer's, may keep what it is given
// back.
TEST(MemoryUse, PeakOutlivesTheMemoryItSaw) {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  MemoryPeaks peaks;
  peaks.sample();
  const MemoryUse before = peaks.peaks();
  EXPECT_GT(before.rss_mib, 1.0);
  EXPECT_GT(before.pss_mib, 0.5);
  void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, 1, kBytes);
  peaks.sample();
  ::munmap(memory, kBytes);
  const MemoryUse with = peaks.peaks();
  EXPECT_GT(with.rss_mib - before.rss_mib, 60.0);
  EXPECT_GT(with.pss_mib - before.pss_mib, 60.0);
  peaks.sample();
  EXPECT_LT(peaks.last_rss_mib(), with.rss_mib - 60.0);
  EXPECT_EQ(peaks.peaks().rss_mib, with.rss_mib);
  EXPECT_EQ(peaks.peaks().pss_mib, with.pss_mib);
}

}  // namespace
}  // namespace accordion
