// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include "accordion/schedule/step_schedule.h"

namespace accordion {
namespace {

/// Follows a schedule action by action as the executor would, without doing
/// anything. Each check returns the fault in words, or an empty string.
class Follower {
 public:
  explicit Follower(const StepSchedule& schedule)
      : schedule_(schedule),
        units_(schedule.units.size()),
        parameter_owner_(schedule.parameter_slots.size(), -1),
        gradient_owner_(schedule.gradient_slots.size(), -1),
        gradient_shard_owner_(schedule.gradient_shard_slots.size(), -1) {
    for (std::size_t i = 0; i < units_.size(); ++i) {
      const ScheduledUnit& unit = schedule.units[i];
      units_[i].whole = unit.begins_unsharded && unit.unsharded_bytes > 0;
      units_[i].gradient = unit.begins_with_gradient && unit.gradient_bytes > 0
                               ? Gradient::Whole
                               : Gradient::None;
    }
  }

  std::string follow(const Action& action) {
    const auto num_units = static_cast<int>(units_.size());
    if (action.unit < 0 || action.unit >= num_units) {
      return fmt::format("there is no unit {}; the schedule has {}",
                         action.unit, num_units);
    }
    if (!may_take_slot(action) && action.slot != -1) {
      return fmt::format("slot {} for {}, which uses none", action.slot,
                         name(action.unit));
    }
    switch (action.kind) {
      case ActionKind::Unshard:
        return unshard(action);
      case ActionKind::Reshard:
        return reshard(action.unit);
      case ActionKind::Forward:
        return forward(action.unit);
      case ActionKind::ForwardEnd:
        return forward_end(action.unit);
      case ActionKind::Backward:
        return backward(action);
      case ActionKind::BackwardEnd:
        return backward_end(action.unit);
      case ActionKind::Reduce:
        return reduce(action);
      case ActionKind::FinishReduce:
        return finish_reduce(action.unit);
      case ActionKind::AllReduce:
        return all_reduce(action.unit);
      case ActionKind::FinishAllReduce:
        return finish_all_reduce(action.unit);
      case ActionKind::Step:
        return step(action.unit);
      case ActionKind::Offload:
        return offload(action.unit);
    }
    return fmt::format("unknown action {}", static_cast<int>(action.kind));
  }

  /// What is left undone after the last action.
  [[nodiscard]] std::string end() const {
    for (int i = 0; i < static_cast<int>(units_.size()); ++i) {
      const UnitState& unit = units_[i];
      if (unit.open_forwards > 0) {
        return fmt::format("forward of {} never ends", name(i));
      }
      if (std::string fault = gradient_left(i); !fault.empty()) {
        return fault;
      }
      const bool may_stay = schedule_.units[i].ends_unsharded;
      if (unit.whole && !may_stay) {
        return fmt::format("{} is never resharded", name(i));
      }
    }
    return "";
  }

 private:
  enum class Gradient {
    None,
    Arriving,
    Whole,  ///< in its slot, complete
    Reducing,
    Reduced,  ///< the slot is free; an all-reduce over replicas is due
    AllReducing,
    Sharded,  ///< complete, for the step or the offload that is due
    Stepped,
  };

  struct UnitState {
    bool whole = false;
    int parameter_slot = -1;  ///< -1 while sharded, or from a pass before
    int gradient_slot = -1;
    int gradient_shard_slot = -1;
    int open_forwards = 0;
    Gradient gradient = Gradient::None;
  };

  [[nodiscard]] std::string gradient_left(int i) const {
    switch (units_[i].gradient) {
      case Gradient::None:
      case Gradient::Stepped:
        return "";
      case Gradient::Sharded:
        return fmt::format(
            "{} is never {}", name(i),
            schedule_.units[i].offloads_gradient ? "offloaded" : "stepped");
      case Gradient::Arriving:
        return fmt::format("backward of {} never ends", name(i));
      case Gradient::Whole:
        return schedule_.units[i].reduces
                   ? fmt::format("the gradient of {} is never reduced", name(i))
                   : "";
      case Gradient::Reducing:
        return fmt::format("the reduction of {} is never finished", name(i));
      case Gradient::Reduced:
        return fmt::format("the gradient of {} is never all-reduced", name(i));
      case Gradient::AllReducing:
        return fmt::format("the all-reduce of {} is never finished", name(i));
    }
    return "";
  }

  [[nodiscard]] std::string name(int unit) const {
    return display_name(schedule_.units[unit]);
  }

  [[nodiscard]] bool frees_shards(int unit) const {
    return schedule_.units[unit].gradient_shard_bytes > 0;
  }

  [[nodiscard]] bool may_take_slot(const Action& action) const {
    switch (action.kind) {
      case ActionKind::Unshard:
        return !schedule_.units[action.unit].in_place;
      case ActionKind::Backward:
        return true;
      case ActionKind::Reduce:
        return frees_shards(action.unit);
      default:
        return false;
    }
  }

  [[nodiscard]] bool is_missing(int unit) const {
    return schedule_.units[unit].unsharded_bytes > 0 && !units_[unit].whole;
  }

  /// Gives slot `slot` of `owners` to a unit that needs `bytes`.
  std::string take(std::vector<int>& owners,
                   const std::vector<std::int64_t>& slots, int slot, int unit,
                   std::int64_t bytes, std::string_view kind) {
    if (slot < 0 || slot >= static_cast<int>(slots.size())) {
      return fmt::format("{} takes {} slot {}, but there are {}", name(unit),
                         kind, slot, slots.size());
    }
    if (owners[slot] >= 0) {
      return fmt::format("{} takes {} slot {} while {} uses it", name(unit),
                         kind, slot, name(owners[slot]));
    }
    if (slots[slot] < bytes) {
      return fmt::format("{} needs {} bytes, but {} slot {} has {}", name(unit),
                         bytes, kind, slot, slots[slot]);
    }
    owners[slot] = unit;
    return "";
  }

  std::string unshard(const Action& action) {
    UnitState& unit = units_[action.unit];
    const std::int64_t bytes = schedule_.units[action.unit].unsharded_bytes;
    if (bytes == 0) {
      return fmt::format("unshard of {}, which has nothing to gather",
                         name(action.unit));
    }
    if (unit.whole) {
      return fmt::format("unshard of {}, which is unsharded already",
                         name(action.unit));
    }
    unit.whole = true;
    if (schedule_.units[action.unit].in_place) {
      return "";
    }
    unit.parameter_slot = action.slot;
    return take(parameter_owner_, schedule_.parameter_slots, action.slot,
                action.unit, bytes, "parameter");
  }

  std::string reshard(int i) {
    UnitState& unit = units_[i];
    if (!unit.whole) {
      return fmt::format("reshard of {}, which is not unsharded", name(i));
    }
    if (unit.open_forwards > 0) {
      return fmt::format("reshard of {} while its forward runs", name(i));
    }
    if (unit.gradient == Gradient::Arriving) {
      return fmt::format("reshard of {} while its backward runs", name(i));
    }
    if (unit.parameter_slot >= 0) {
      parameter_owner_[unit.parameter_slot] = -1;
    }
    unit.parameter_slot = -1;
    unit.whole = false;
    return "";
  }

  std::string forward(int i) {
    if (is_missing(i)) {
      return fmt::format("forward of {} without an unshard before it", name(i));
    }
    ++units_[i].open_forwards;
    return "";
  }

  std::string forward_end(int i) {
    if (units_[i].open_forwards == 0) {
      return fmt::format("end of a forward of {} that has not begun", name(i));
    }
    --units_[i].open_forwards;
    return "";
  }

  std::string backward(const Action& action) {
    UnitState& unit = units_[action.unit];
    if (is_missing(action.unit)) {
      return fmt::format("backward of {} without an unshard before it",
                         name(action.unit));
    }
    if (unit.gradient == Gradient::Stepped) {
      return fmt::format("backward of {} begins after its step",
                         name(action.unit));
    }
    const bool holds_slot = unit.gradient == Gradient::Whole;
    if (unit.gradient != Gradient::None &&
        !(holds_slot && may_add(action.unit))) {
      return fmt::format(
          "backward of {} begins before the one before it is reduced and "
          "finished",
          name(action.unit));
    }
    unit.gradient = Gradient::Arriving;
    const std::int64_t bytes = schedule_.units[action.unit].gradient_bytes;
    if (bytes == 0 || holds_slot) {
      return action.slot == -1
                 ? ""
                 : fmt::format("gradient slot {} for {}, which has {}",
                               action.slot, name(action.unit),
                               holds_slot ? "one" : "no gradient");
    }
    unit.gradient_slot = action.slot;
    return take(gradient_owner_, schedule_.gradient_slots, action.slot,
                action.unit, bytes, "gradient");
  }

  /// Whether a gradient that is there may be added to: it came from a pass
  /// before, or stays for one behind.
  [[nodiscard]] bool may_add(int i) const {
    return !schedule_.units[i].reduces || units_[i].gradient_slot < 0;
  }

  std::string backward_end(int i) {
    UnitState& unit = units_[i];
    if (unit.gradient != Gradient::Arriving) {
      return fmt::format("end of a backward of {} that has not begun", name(i));
    }
    unit.gradient = schedule_.units[i].gradient_bytes > 0 ? Gradient::Whole
                                                          : Gradient::None;
    return "";
  }

  std::string reduce(const Action& action) {
    const int i = action.unit;
    if (units_[i].gradient != Gradient::Whole) {
      return fmt::format("reduce of {}, whose gradient is not complete",
                         name(i));
    }
    if (!schedule_.units[i].reduces) {
      return fmt::format("reduce of {}, whose gradient is to stay whole",
                         name(i));
    }
    units_[i].gradient = Gradient::Reducing;
    if (!frees_shards(i)) {
      return "";
    }
    units_[i].gradient_shard_slot = action.slot;
    return take(gradient_shard_owner_, schedule_.gradient_shard_slots,
                action.slot, i, schedule_.units[i].gradient_shard_bytes,
                "sharded gradient");
  }

  std::string finish_reduce(int i) {
    UnitState& unit = units_[i];
    if (unit.gradient != Gradient::Reducing) {
      return fmt::format("end of a reduction of {} that has not begun",
                         name(i));
    }
    if (unit.gradient_slot >= 0) {
      gradient_owner_[unit.gradient_slot] = -1;
    }
    unit.gradient_slot = -1;
    unit.gradient = schedule_.units[i].all_reduce_bytes > 0 ? Gradient::Reduced
                                                            : complete(i);
    return "";
  }

  /// A sharded gradient that is final.
  [[nodiscard]] Gradient complete(int i) const {
    return frees_shards(i) ? Gradient::Sharded : Gradient::None;
  }

  std::string all_reduce(int i) {
    if (units_[i].gradient != Gradient::Reduced) {
      return fmt::format(
          "all-reduce of {}, whose gradient is not reduced, or has no replicas",
          name(i));
    }
    units_[i].gradient = Gradient::AllReducing;
    return "";
  }

  std::string finish_all_reduce(int i) {
    if (units_[i].gradient != Gradient::AllReducing) {
      return fmt::format("end of an all-reduce of {} that has not begun",
                         name(i));
    }
    units_[i].gradient = complete(i);
    return "";
  }

  std::string step(int i) {
    UnitState& unit = units_[i];
    if (unit.gradient != Gradient::Sharded ||
        schedule_.units[i].offloads_gradient) {
      return fmt::format(
          "step of {}, whose gradient is not there, or stays after the pass",
          name(i));
    }
    if (unit.whole) {
      return fmt::format("step of {} while it is unsharded", name(i));
    }
    gradient_shard_owner_[unit.gradient_shard_slot] = -1;
    unit.gradient = Gradient::Stepped;
    return "";
  }

  /// What comes behind adds to what was offloaded.
  std::string offload(int i) {
    UnitState& unit = units_[i];
    if (unit.gradient != Gradient::Sharded ||
        !schedule_.units[i].offloads_gradient) {
      return fmt::format(
          "offload of the gradient of {}, which is not there, or stays",
          name(i));
    }
    gradient_shard_owner_[unit.gradient_shard_slot] = -1;
    unit.gradient = Gradient::None;
    return "";
  }

  const StepSchedule& schedule_;
  std::vector<UnitState> units_;
  std::vector<int> parameter_owner_;  ///< unit that uses the slot, or -1
  std::vector<int> gradient_owner_;
  std::vector<int> gradient_shard_owner_;
};

}  // namespace

std::string validate(const StepSchedule& schedule) {
  Follower follower(schedule);
  for (std::size_t i = 0; i < schedule.actions.size(); ++i) {
    const std::string fault = follower.follow(schedule.actions[i]);
    if (!fault.empty()) {
      return fmt::format("action {}: {}", i, fault);
    }
  }
  const std::string fault = follower.end();
  return fault.empty() ? "" : "at the end: " + fault;
}

}  // namespace accordion
