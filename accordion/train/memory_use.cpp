// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/memory_use.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string>

namespace accordion {
namespace {

std::string read_proc(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

void MemoryPeaks::sample_rss() {
  last_rss_mib_ = proc_field_mib(read_proc("/proc/self/status"), "VmRSS");
  peaks_.rss_mib = std::max(peaks_.rss_mib, last_rss_mib_);
}

void MemoryPeaks::sample() {
  sample_rss();
  last_pss_mib_ = proc_field_mib(read_proc("/proc/self/smaps_rollup"), "Pss");
  peaks_.pss_mib = std::max(peaks_.pss_mib, last_pss_mib_);
}

double proc_field_mib(std::string_view text, std::string_view field) {
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.starts_with(field) || line.size() <= field.size() ||
        line[field.size()] != ':') {
      continue;
    }
    line.remove_prefix(std::min(line.find_first_of("0123456789"), line.size()));
    std::int64_t kib = 0;
    std::from_chars(line.data(), line.data() + line.size(), kib);
    return static_cast<double>(kib) / 1024.0;
  }
  return 0.0;
}

}  // namespace accordion
