// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "accordion/schedule/slot_assignment.h"
#include "accordion/schedule/step_schedule.h"

namespace accordion {
namespace {

using Units = std::vector<ScheduledUnit>;
using Markers = std::span<const Action>;

bool begins(ActionKind kind) {
  return kind == ActionKind::Forward || kind == ActionKind::Backward;
}

/// Calls of a unit that have begun and not ended.
struct OpenCalls {
  int forward = 0;
  int backward = 0;
  bool had_forward = false;

  [[nodiscard]] int total() const { return forward + backward; }
};

/// What is wrong with passing `kind` now, or nothing.
std::string_view fault(const OpenCalls& calls, ActionKind kind) {
  switch (kind) {
    case ActionKind::Forward:
      return "";
    case ActionKind::ForwardEnd:
      return calls.forward > 0 ? "" : "its forward ends without having begun";
    case ActionKind::Backward:
      if (!calls.had_forward) {
        return "its backward begins without a forward before it";
      }
      return calls.backward == 0 ? "" : "its backward begins while it runs";
    case ActionKind::BackwardEnd:
      return calls.backward > 0 ? "" : "its backward ends without having begun";
    default:
      return "actions other than markers are made by make_schedule itself";
  }
}

void pass(OpenCalls& calls, ActionKind kind) {
  switch (kind) {
    case ActionKind::Forward:
      ++calls.forward;
      calls.had_forward = true;
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

void check_markers(const Units& units, Markers markers) {
  std::vector<OpenCalls> calls(units.size());
  for (std::size_t m = 0; m < markers.size(); ++m) {
    const int unit = markers[m].unit;
    if (unit < 0 || unit >= static_cast<int>(units.size())) {
      throw std::invalid_argument(
          fmt::format("[make_schedule] marker {} is of unit {}, but there are "
                      "{} units.",
                      m, unit, units.size()));
    }
    const std::string_view why = fault(calls[unit], markers[m].kind);
    if (!why.empty()) {
      throw std::invalid_argument(
          fmt::format("[make_schedule] marker {} of unit {}: {}.", m,
                      display_name(units[unit]), why));
    }
    pass(calls[unit], markers[m].kind);
  }
  for (std::size_t u = 0; u < units.size(); ++u) {
    if (calls[u].total() > 0) {
      throw std::invalid_argument(fmt::format(
          "[make_schedule] unit {}: its {} never ends.", display_name(units[u]),
          calls[u].forward > 0 ? "forward" : "backward"));
    }
  }
}

/// A stretch of the program during which a unit must be unsharded.
struct Use {
  int unit = 0;
  std::size_t begin = 0;  ///< marker before which it is unsharded
  std::size_t end = 0;    ///< marker after which it may be resharded
  bool unshard = true;    ///< false where it still is from the use before
  bool reshard = true;    ///< false where it stays for the next use
};

/// The uses in the order in which they begin.
std::vector<Use> find_uses(const Units& units, Markers markers) {
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
    const bool first = units[unit].kept ? last_use[unit] < 0 : !was_open;
    if (begins(kind) && first) {
      last_use[unit] = static_cast<int>(uses.size());
      uses.push_back({.unit = unit, .begin = m});
    }
    uses[last_use[unit]].end = m;
  }
  return uses;
}

/// Applies [Note: last unit].
void join_uses(std::vector<Use>& uses, int num_units, int prefetch) {
  std::vector<int> next_of_unit(num_units, -1);
  for (int i = static_cast<int>(uses.size()) - 1; i >= 0; --i) {
    Use& use = uses[i];
    const int next = std::exchange(next_of_unit[use.unit], i);
    if (next < 0) {
      continue;
    }
    // The next unit to begin when this use ends; with it, the unshards of the
    // `prefetch` uses behind are due.
    const auto after =
        std::find_if(uses.begin() + i, uses.end(),
                     [&](const Use& other) { return other.begin > use.end; });
    if (next - (after - uses.begin()) <= prefetch) {
      use.reshard = false;
      uses[next].unshard = false;
    }
  }
}

/// Writes the actions of a program while walking its markers.
class ScheduleWriter {
 public:
  ScheduleWriter(const Units& units, std::vector<Use> uses, int prefetch)
      : units_(units), uses_(std::move(uses)), prefetch_(prefetch) {}

  void write(std::size_t m, const Action& marker) {
    if (begins(marker.kind)) {
      write_begin(m, marker);
    } else {
      write_end(m, marker);
    }
  }

  std::vector<Action> finish() {
    finish_reductions();
    return std::move(actions_);
  }

 private:
  void write_begin(std::size_t m, const Action& marker) {
    while (begun_ < uses_.size() && uses_[begun_].begin <= m) {
      ++begun_;
    }
    unshard_until(begun_);
    if (marker.kind == ActionKind::Backward && is_reducing(marker.unit)) {
      finish_reductions();
    }
    add(marker.kind, marker.unit);
    unshard_until(std::min(begun_ + prefetch_, uses_.size()));
  }

  void write_end(std::size_t m, const Action& marker) {
    const int unit = marker.unit;
    add(marker.kind, unit);
    const bool reduces = marker.kind == ActionKind::BackwardEnd &&
                         units_[unit].gradient_bytes > 0;
    if (reduces) {
      add(ActionKind::Reduce, unit);
    }
    for (const Use& use : uses_) {
      if (use.end == m && use.reshard) {
        add(ActionKind::Reshard, unit);
      }
    }
    if (reduces) {
      finish_reductions();
      reducing_.push_back(unit);
    }
  }

  void add(ActionKind kind, int unit) { actions_.push_back({kind, unit}); }

  void unshard_until(std::size_t end) {
    for (; unsharded_ < end; ++unsharded_) {
      if (uses_[unsharded_].unshard) {
        add(ActionKind::Unshard, uses_[unsharded_].unit);
      }
    }
  }

  [[nodiscard]] bool is_reducing(int unit) const {
    return std::find(reducing_.begin(), reducing_.end(), unit) !=
           reducing_.end();
  }

  void finish_reductions() {
    for (const int unit : reducing_) {
      add(ActionKind::FinishReduce, unit);
    }
    reducing_.clear();
  }

  const Units& units_;
  std::vector<Use> uses_;
  std::size_t prefetch_;
  std::size_t begun_ = 0;      ///< uses whose begin was passed
  std::size_t unsharded_ = 0;  ///< uses whose unshard was written
  std::vector<int> reducing_;
  std::vector<Action> actions_;
};

}  // namespace

std::string display_name(const ScheduledUnit& unit) {
  return unit.name.empty() ? "(root)" : fmt::format("'{}'", unit.name);
}

StepSchedule make_schedule(std::vector<ScheduledUnit> units,
                           std::span<const Action> markers, int prefetch) {
  if (prefetch < 0) {
    throw std::invalid_argument(fmt::format(
        "[make_schedule] prefetch is {}; it must not be negative.", prefetch));
  }
  check_markers(units, markers);
  std::vector<Use> uses = find_uses(units, markers);
  join_uses(uses, static_cast<int>(units.size()), prefetch);

  ScheduleWriter writer(units, std::move(uses), prefetch);
  for (std::size_t m = 0; m < markers.size(); ++m) {
    writer.write(m, markers[m]);
  }
  StepSchedule schedule;
  schedule.actions = writer.finish();
  schedule.units = std::move(units);
  detail::assign_slots(schedule, prefetch > 0 ? 1 : 0);
  return schedule;
}

std::vector<Action> forward_backward_markers(
    std::span<const ScheduledUnit> units) {
  std::vector<Action> markers;
  const int count = static_cast<int>(units.size());
  if (count == 0) {
    return markers;
  }
  markers.push_back({ActionKind::Forward, 0});
  for (int unit = 1; unit < count; ++unit) {
    markers.push_back({ActionKind::Forward, unit});
    markers.push_back({ActionKind::ForwardEnd, unit});
  }
  markers.push_back({ActionKind::ForwardEnd, 0});
  markers.push_back({ActionKind::Backward, 0});
  for (int unit = count - 1; unit > 0; --unit) {
    markers.push_back({ActionKind::Backward, unit});
    markers.push_back({ActionKind::BackwardEnd, unit});
  }
  markers.push_back({ActionKind::BackwardEnd, 0});
  return markers;
}

}  // namespace accordion
