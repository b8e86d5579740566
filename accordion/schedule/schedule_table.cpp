// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "accordion/schedule/step_schedule.h"

namespace accordion {
namespace {

std::string_view verb(ActionKind kind) {
  switch (kind) {
    case ActionKind::Unshard:
      return "unshard";
    case ActionKind::Reshard:
      return "reshard";
    case ActionKind::Forward:
      return "forward {";
    case ActionKind::ForwardEnd:
      return "} forward";
    case ActionKind::Backward:
      return "backward {";
    case ActionKind::BackwardEnd:
      return "} backward";
    case ActionKind::Reduce:
      return "reduce";
    case ActionKind::FinishReduce:
      return "finish reduce";
    case ActionKind::AllReduce:
      return "all-reduce";
    case ActionKind::FinishAllReduce:
      return "finish all-reduce";
    case ActionKind::Step:
      return "step";
    case ActionKind::Offload:
      return "offload";
  }
  return "?";
}

/// Tables also show edited schedules whose units do not exist.
std::string unit_name(const StepSchedule& schedule, int unit) {
  if (unit < 0 || unit >= static_cast<int>(schedule.units.size())) {
    return fmt::format("unit {}?", unit);
  }
  const std::string& name = schedule.units[unit].name;
  return name.empty() ? "(root)" : name;
}

bool is_in_place(const StepSchedule& schedule, int unit) {
  return unit >= 0 && unit < static_cast<int>(schedule.units.size()) &&
         schedule.units[unit].in_place;
}

std::string slot_name(const StepSchedule& schedule, const Action& action) {
  if (action.slot < 0) {
    const bool gathers = action.kind == ActionKind::Unshard &&
                         is_in_place(schedule, action.unit);
    return gathers ? "-" : "";
  }
  const char kind = action.kind == ActionKind::Unshard  ? 'p'
                    : action.kind == ActionKind::Reduce ? 's'
                                                        : 'g';
  return fmt::format("{}{}", kind, action.slot);
}

/// Bytes that are unsharded before the first action.
std::int64_t unsharded_at_start(const StepSchedule& schedule) {
  std::int64_t bytes = 0;
  for (const ScheduledUnit& unit : schedule.units) {
    bytes += unit.begins_unsharded ? unit.parameter_slot_bytes() : 0;
  }
  return bytes;
}

/// What an action adds to the unsharded bytes.
std::int64_t unsharded_change(const StepSchedule& schedule,
                              const Action& action) {
  if (action.unit < 0 ||
      action.unit >= static_cast<int>(schedule.units.size())) {
    return 0;
  }
  const std::int64_t bytes = schedule.units[action.unit].parameter_slot_bytes();
  if (action.kind == ActionKind::Unshard) {
    return bytes;
  }
  return action.kind == ActionKind::Reshard ? -bytes : 0;
}

std::string mib(std::int64_t bytes) {
  return fmt::format("{:.2f}", static_cast<double>(bytes) / (1 << 20));
}

/// "p0 12.00, p1-p3 4.00 each": neighbours of one size are put together.
std::string slot_sizes(char prefix, const std::vector<std::int64_t>& slots) {
  std::string text;
  for (std::size_t i = 0; i < slots.size();) {
    std::size_t end = i + 1;
    while (end < slots.size() && slots[end] == slots[i]) {
      ++end;
    }
    text += text.empty() ? "" : ", ";
    text += end == i + 1 ? fmt::format("{}{} {}", prefix, i, mib(slots[i]))
                         : fmt::format("{0}{1}-{0}{2} {3} each", prefix, i,
                                       end - 1, mib(slots[i]));
    i = end;
  }
  return text.empty() ? "none" : text;
}

/// What follows the parameter slots of a schedule that needs fewer.
std::string units_in_place(const StepSchedule& schedule) {
  const auto count =
      std::count_if(schedule.units.begin(), schedule.units.end(),
                    [](const ScheduledUnit& unit) { return unit.in_place; });
  return count == 0 ? ""
                    : fmt::format("; {} of {} units are gathered in place (-)",
                                  count, schedule.units.size());
}

}  // namespace

std::int64_t peak_unsharded_bytes(const StepSchedule& schedule) {
  std::int64_t now = unsharded_at_start(schedule);
  std::int64_t peak = now;
  for (const Action& action : schedule.actions) {
    now += unsharded_change(schedule, action);
    peak = std::max(peak, now);
  }
  return peak;
}

std::string to_table(const StepSchedule& schedule) {
  std::size_t width = 4;
  for (const Action& action : schedule.actions) {
    width = std::max(width, unit_name(schedule, action.unit).size());
  }
  std::string table;
  const auto out = std::back_inserter(table);
  fmt::format_to(out, "{:>4}  {:<17}  {:<{}}  {:>4}  {:>13}\n", "#", "action",
                 "unit", width, "slot", "unsharded MiB");
  std::int64_t unsharded = unsharded_at_start(schedule);
  for (std::size_t i = 0; i < schedule.actions.size(); ++i) {
    const Action& action = schedule.actions[i];
    unsharded += unsharded_change(schedule, action);
    fmt::format_to(out, "{:>4}  {:<17}  {:<{}}  {:>4}  {:>13}\n", i,
                   verb(action.kind), unit_name(schedule, action.unit), width,
                   slot_name(schedule, action), mib(unsharded));
  }
  fmt::format_to(out, "parameter slots (MiB): {}{}\n",
                 slot_sizes('p', schedule.parameter_slots),
                 units_in_place(schedule));
  fmt::format_to(out, "gradient slots (MiB): {}\n",
                 slot_sizes('g', schedule.gradient_slots));
  if (!schedule.gradient_shard_slots.empty()) {
    fmt::format_to(out, "sharded gradient slots (MiB): {}\n",
                   slot_sizes('s', schedule.gradient_shard_slots));
  }
  fmt::format_to(out, "peak unsharded MiB: {}\n",
                 mib(peak_unsharded_bytes(schedule)));
  return table;
}

}  // namespace accordion
