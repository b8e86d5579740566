// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "accordion/schedule/slot_assignment.h"
#include "accordion/schedule/step_schedule.h"
#include "accordion/schedule/unit_uses.h"

namespace accordion {
namespace {

using Units = std::vector<ScheduledUnit>;
using Markers = std::span<const Action>;
using detail::begins;
using detail::OpenCalls;
using detail::Use;

/// What is wrong with passing `kind` now, or nothing.
std::string_view fault(const OpenCalls& calls, ActionKind kind) {
  switch (kind) {
    case ActionKind::Forward:
      return "";
    case ActionKind::ForwardEnd:
      return calls.forward > 0 ? "" : "its forward ends without having begun";
    case ActionKind::Backward:
      return calls.backward == 0 ? "" : "its backward begins while it runs";
    case ActionKind::BackwardEnd:
      return calls.backward > 0 ? "" : "its backward ends without having begun";
    default:
      return "actions other than markers are made by make_schedule itself";
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
    detail::pass(calls[unit], markers[m].kind);
  }
  for (std::size_t u = 0; u < units.size(); ++u) {
    if (calls[u].total() > 0) {
      throw std::invalid_argument(fmt::format(
          "[make_schedule] unit {}: its {} never ends.", display_name(units[u]),
          calls[u].forward > 0 ? "forward" : "backward"));
    }
  }
}

void check_prefetch(const Units& units, const Prefetch& prefetch) {
  if (prefetch.depth < 0 || prefetch.max_bytes < 0) {
    throw std::invalid_argument(fmt::format(
        "[make_schedule] prefetch is {} units and {} bytes; it must "
        "not be negative.",
        prefetch.depth, prefetch.max_bytes));
  }
  const auto check = [&](const ScheduledUnit& unit,
                         const std::optional<std::vector<int>>& listed) {
    for (const int other : listed.value_or(std::vector<int>())) {
      if (other < 0 || other >= static_cast<int>(units.size())) {
        throw std::invalid_argument(
            fmt::format("[make_schedule] unit {} is to prefetch unit {}, but "
                        "there are {} units.",
                        display_name(unit), other, units.size()));
      }
    }
  };
  for (const ScheduledUnit& unit : units) {
    check(unit, unit.forward_prefetch);
    check(unit, unit.backward_prefetch);
  }
}

/// Writes the actions of a program while walking its markers.
class ScheduleWriter {
 public:
  ScheduleWriter(const Units& units, std::vector<Use> uses,
                 const Prefetch& prefetch)
      : units_(units),
        uses_(std::move(uses)),
        prefetch_(prefetch),
        has_gradient_(units.size()) {
    for (std::size_t u = 0; u < units.size(); ++u) {
      has_gradient_[u] = units[u].begins_with_gradient;
    }
  }

  void write(std::size_t m, const Action& marker) {
    if (begins(marker.kind)) {
      write_begin(m, marker);
    } else {
      write_end(m, marker);
    }
  }

  std::vector<Action> finish() {
    for (std::size_t u = 0; u < units_.size(); ++u) {
      const int unit = static_cast<int>(u);
      const bool used =
          std::any_of(uses_.begin(), uses_.end(),
                      [unit](const Use& use) { return use.unit == unit; });
      if (units_[u].begins_unsharded && !units_[u].ends_unsharded && !used) {
        add(ActionKind::Reshard, unit);
      }
      if (has_gradient_[u] && units_[u].reduces) {
        reduce(unit);  // of passes before; this one had none to add
      }
    }
    advance_reductions();
    advance_reductions();
    return std::move(actions_);
  }

 private:
  void write_begin(std::size_t m, const Action& marker) {
    while (begun_ < uses_.size() && uses_[begun_].begin <= m) {
      issue(begun_++);
    }
    if (marker.kind == ActionKind::Backward) {
      while (is_reducing(marker.unit)) {
        advance_reductions();
      }
      has_gradient_[marker.unit] = units_[marker.unit].gradient_bytes > 0;
    }
    add(marker.kind, marker.unit);
    prefetch(m, marker);
  }

  void write_end(std::size_t m, const Action& marker) {
    const int unit = marker.unit;
    add(marker.kind, unit);
    const bool reduces = marker.kind == ActionKind::BackwardEnd &&
                         units_[unit].gradient_bytes > 0 &&
                         units_[unit].reduces;
    if (reduces) {
      add(ActionKind::Reduce, unit);
      has_gradient_[unit] = false;
    }
    for (const Use& use : uses_) {
      if (use.end == m && use.reshard) {
        add(ActionKind::Reshard, unit);
      }
    }
    if (reduces) {
      advance_reductions();
      reducing_.push_back(unit);
    }
  }

  void add(ActionKind kind, int unit) { actions_.push_back({kind, unit}); }

  /// Writes the unshard of a use, unless it was written ahead.
  void issue(std::size_t use) {
    if (std::exchange(uses_[use].unshard, false)) {
      add(ActionKind::Unshard, uses_[use].unit);
    }
  }

  void prefetch(std::size_t m, const Action& marker) {
    const ScheduledUnit& unit = units_[marker.unit];
    const auto& listed = marker.kind == ActionKind::Forward
                             ? unit.forward_prefetch
                             : unit.backward_prefetch;
    if (listed) {
      for (const int other : *listed) {
        prefetch_unit(m, other);
      }
    } else {
      prefetch_next();
    }
  }

  /// The next use of a unit, if it is not whole until then anyway.
  void prefetch_unit(std::size_t m, int unit) {
    for (std::size_t i = 0; i < uses_.size(); ++i) {
      if (uses_[i].unit != unit) {
        continue;
      }
      if (uses_[i].begin <= m) {
        if (uses_[i].end >= m) {
          return;  // in use now
        }
        continue;
      }
      issue(i);
      return;
    }
  }

  void prefetch_next() {
    const std::size_t end = std::min(
        begun_ + static_cast<std::size_t>(prefetch_.depth), uses_.size());
    std::int64_t bytes = 0;
    for (std::size_t i = begun_; i < end; ++i) {
      bytes += units_[uses_[i].unit].unsharded_bytes;
      if (prefetch_.max_bytes > 0 && bytes > prefetch_.max_bytes) {
        return;
      }
      issue(i);
    }
  }

  [[nodiscard]] bool is_reducing(int unit) const {
    return std::find(reducing_.begin(), reducing_.end(), unit) !=
               reducing_.end() ||
           std::find(all_reducing_.begin(), all_reducing_.end(), unit) !=
               all_reducing_.end();
  }

  void reduce(int unit) {
    add(ActionKind::Reduce, unit);
    advance_reductions();
    reducing_.push_back(unit);
    has_gradient_[unit] = false;
  }

  /// Takes every reduction in flight one stage on.
  void advance_reductions() {
    for (const int unit : std::exchange(all_reducing_, {})) {
      add(ActionKind::FinishAllReduce, unit);
      hand_over(unit);
    }
    for (const int unit : std::exchange(reducing_, {})) {
      add(ActionKind::FinishReduce, unit);
      if (units_[unit].all_reduce_bytes > 0) {
        add(ActionKind::AllReduce, unit);
        all_reducing_.push_back(unit);
      } else {
        hand_over(unit);
      }
    }
  }

  /// The sharded gradient, where it does not stay.
  void hand_over(int unit) {
    if (units_[unit].gradient_shard_bytes > 0) {
      add(units_[unit].offloads_gradient ? ActionKind::Offload
                                         : ActionKind::Step,
          unit);
    }
  }

  const Units& units_;
  std::vector<Use> uses_;
  Prefetch prefetch_;
  std::size_t begun_ = 0;           ///< uses whose begin was passed
  std::vector<bool> has_gradient_;  ///< whole, in its slot, not reduced yet
  std::vector<int> reducing_;
  std::vector<int> all_reducing_;
  std::vector<Action> actions_;
};

}  // namespace

std::string display_name(const ScheduledUnit& unit) {
  return unit.name.empty() ? "(root)" : fmt::format("'{}'", unit.name);
}

std::string describe_marker(const Action& marker,
                            std::span<const ScheduledUnit> units) {
  return fmt::format(
      "the {}{} of unit {}", begins(marker.kind) ? "" : "end of the ",
      is_of_forward(marker.kind) ? "forward" : "backward",
      display_name(units[static_cast<std::size_t>(marker.unit)]));
}

StepSchedule make_schedule(std::vector<ScheduledUnit> units,
                           std::span<const Action> markers,
                           const Prefetch& prefetch) {
  check_prefetch(units, prefetch);
  check_markers(units, markers);
  std::vector<Use> uses = detail::find_uses(units, markers);
  detail::join_uses(uses, static_cast<int>(units.size()), prefetch.depth);

  ScheduleWriter writer(units, std::move(uses), prefetch);
  for (std::size_t m = 0; m < markers.size(); ++m) {
    writer.write(m, markers[m]);
  }
  StepSchedule schedule;
  schedule.actions = writer.finish();
  schedule.units = std::move(units);
  detail::assign_slots(schedule, prefetch.depth > 0 ? 1 : 0);
  return schedule;
}

std::vector<Action> markers_of(const StepSchedule& schedule) {
  std::vector<Action> markers;
  for (const Action& action : schedule.actions) {
    if (is_marker(action.kind)) {
      markers.push_back({action.kind, action.unit});
    }
  }
  return markers;
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
