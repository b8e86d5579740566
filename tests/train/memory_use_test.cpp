// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/memory_use.h"

#include <cstddef>
#include <vector>

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

TEST(MemoryUse, PeakOutlivesTheMemoryItSaw) {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  MemoryPeaks peaks;
  peaks.sample();
  const MemoryUse before = peaks.peaks();
  EXPECT_GT(before.rss_mib, 1.0);
  EXPECT_GT(before.pss_mib, 0.5);
  {
    const std::vector<char> touched(kBytes, 1);
    peaks.sample();
    ASSERT_EQ(touched.back(), 1);
  }
  peaks.sample();
  EXPECT_NEAR(peaks.peaks().rss_mib - before.rss_mib, 64.0, 8.0);
  EXPECT_NEAR(peaks.peaks().pss_mib - before.pss_mib, 64.0, 8.0);
  EXPECT_LT(peaks.last_rss_mib(), before.rss_mib + 32.0);
}

}  // namespace
}  // namespace accordion
