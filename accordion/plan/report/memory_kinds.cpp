// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/report/memory_kinds.h"

#include <set>

namespace accordion::plan {

std::vector<const MemoryPoint*> sampled(const MemoryPlan& memory,
                                        std::size_t count) {
  const std::size_t size = memory.timeline.size();
  std::set<std::size_t> places = {memory.peak};
  for (std::size_t i = 0; i + 1 < count && size > 0; ++i) {
    places.insert(count > 2 ? i * (size - 1) / (count - 2) : 0);
  }
  std::vector<const MemoryPoint*> points;
  for (const std::size_t place : places) {
    points.push_back(&memory.timeline[place]);
  }
  return points;
}

}  // namespace accordion::plan
