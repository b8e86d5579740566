// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string_view>

namespace accordion {

/// Memory of this process.
///
/// Units  MiB
struct MemoryUse {
  double rss_mib = 0.0;  ///< resident, shared pages counted in full
  double pss_mib = 0.0;  ///< resident, shared pages divided by their users
};

/// Keeps the peaks of what it samples.
class MemoryPeaks {
 public:
  /// Resident size alone: about 20 microseconds.
  void sample_rss();
  /// Both sizes: milliseconds, as the kernel walks every page.
  void sample();

  [[nodiscard]] const MemoryUse& peaks() const { return peaks_; }
  /// At the last sample, of either size.
  [[nodiscard]] double last_rss_mib() const { return last_rss_mib_; }
  [[nodiscard]] double last_pss_mib() const { return last_pss_mib_; }

 private:
  MemoryUse peaks_;
  double last_rss_mib_ = 0.0;
  double last_pss_mib_ = 0.0;
};

/// The number of a line "field:   123 kB" as /proc prints it, in MiB; 0 where
/// there is no such line.
[[nodiscard]] double proc_field_mib(std::string_view text,
                                    std::string_view field);

}  // namespace accordion
