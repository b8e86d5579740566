// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <ctime>
#include <functional>
#include <vector>

namespace accordion::benchmarks {

/// Processor time of this thread, which others on the machine do not lengthen.
inline double processor_ms(const std::function<void()>& body) {
  const auto now = [] {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e3 +
           static_cast<double>(time.tv_nsec) * 1e-6;
  };
  const double start = now();
  body();
  return now() - start;
}

inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace accordion::benchmarks
