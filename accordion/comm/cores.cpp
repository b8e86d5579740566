// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/cores.h"

#include <sched.h>

#include <algorithm>
#include <bit>

namespace accordion {

static_assert(CoreSet::kMost == CPU_SETSIZE);

CoreSet CoreSet::of_this_thread() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CoreSet result;
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) {
    return result;
  }
  for (int core = 0; core < kMost; ++core) {
    if (CPU_ISSET(core, &cores)) {
      result.add(core);
    }
  }
  return result;
}

int CoreSet::count() const {
  int sum = 0;
  for (const std::uint64_t word : words_) {
    sum += std::popcount(word);
  }
  return sum;
}

bool CoreSet::contains(int core) const {
  return (words_[static_cast<std::size_t>(core / 64)] >> (core % 64) & 1) != 0;
}

void CoreSet::add(int core) {
  words_[static_cast<std::size_t>(core / 64)] |= std::uint64_t{1}
                                                 << (core % 64);
}

CoreSet& CoreSet::operator|=(const CoreSet& other) {
  for (std::size_t i = 0; i < words_.size(); ++i) {
    words_[i] |= other.words_[i];
  }
  return *this;
}

CoreSet CoreSet::part(int index, int parts) const {
  const int begin = count() * index / parts;
  const int end = count() * (index + 1) / parts;
  CoreSet result;
  int seen = 0;
  for (int core = 0; core < kMost; ++core) {
    if (contains(core)) {
      if (seen >= begin && seen < end) {
        result.add(core);
      }
      ++seen;
    }
  }
  return result;
}

void CoreSet::bind_this_thread() const {
  if (count() == 0) {
    return;
  }
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (int core = 0; core < kMost; ++core) {
    if (contains(core)) {
      CPU_SET(core, &cores);
    }
  }
  static_cast<void>(sched_setaffinity(0, sizeof(cores), &cores));
}

int cores_of_rank(std::span<const CoreSet> of_host, int index) {
  const CoreSet& mine = of_host[static_cast<std::size_t>(index)];
  const auto sharers = std::count(of_host.begin(), of_host.end(), mine);
  return std::max(1, mine.count() / static_cast<int>(sharers));
}

}  // namespace accordion
