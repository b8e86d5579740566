// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/schedule/unit_uses.h"

#include <algorithm>
#include <utility>

namespace accordion::detail {

void pass(OpenCalls& calls, ActionKind kind) {
  switch (kind) {
    case ActionKind::Forward:
      ++calls.forward;
      break;
    case ActionKind::ForwardEnd:
      --calls.forward;
      break;
    case ActionKind::Backward:
      ++calls.backward;
      break;
    default:
      --calls.backward;
  }
}

std::vector<Use> find_uses(const std::vector<ScheduledUnit>& units,
                           std::span<const Action> markers) {
  std::vector<Use> uses;
  std::vector<OpenCalls> calls(units.size());
  std::vector<int> last_use(units.size(), -1);
  for (std::size_t m = 0; m < markers.size(); ++m) {
    const auto [kind, unit, slot] = markers[m];
    const bool was_open = calls[unit].total() > 0;
    pass(calls[unit], kind);
    if (units[unit].unsharded_bytes == 0) {
      continue;
    }
    const bool stays = units[unit].kept || units[unit].ends_unsharded;
    const bool first = stays ? last_use[unit] < 0 : !was_open;
    if (begins(kind) && first) {
      const bool unshard = last_use[unit] >= 0 || !units[unit].begins_unsharded;
      last_use[unit] = static_cast<int>(uses.size());
      uses.push_back({.unit = unit,
                      .begin = m,
                      .unshard = unshard,
                      .reshard = !units[unit].ends_unsharded});
    }
    uses[last_use[unit]].end = m;
  }
  return uses;
}

void join_uses(std::vector<Use>& uses, int num_units, int depth) {
  std::vector<int> next_of_unit(num_units, -1);
  for (int i = static_cast<int>(uses.size()) - 1; i >= 0; --i) {
    Use& use = uses[i];
    const int next = std::exchange(next_of_unit[use.unit], i);
    if (next < 0) {
      continue;
    }
    // The next unit to begin when this use ends; with it, the unshards of the
    // `depth` uses behind are due.
    const auto after =
        std::find_if(uses.begin() + i, uses.end(),
                     [&](const Use& other) { return other.begin > use.end; });
    if (next - (after - uses.begin()) <= depth) {
      use.reshard = false;
      uses[next].unshard = false;
    }
  }
}

}  // namespace accordion::detail
