// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace accordion {

/// What happens to a unit at one point of a step.
///
/// // [Note: markers and actions]
/// Forward, ForwardEnd, Backward and BackwardEnd are markers: the user's program
/// reaches them, and the executor does nothing but check the order (and wait for
/// the unit's all-gather at Forward and Backward). The others are actions: the
/// executor does them as soon as the marker before them is passed.
enum class ActionKind : std::uint8_t {
  Unshard,       ///< start the all-gather of the parameters, into `slot`
  Reshard,       ///< free the unsharded parameters
  Forward,       ///< marker: forward of the unit begins
  ForwardEnd,    ///< marker: it returned
  Backward,      ///< marker: the first gradient of the unit's outputs arrived;
                 ///< its parameters' gradients go to gradient slot `slot`
  BackwardEnd,   ///< marker: all gradients of its parameters are there
  Reduce,        ///< start the reduction of the gradients
  FinishReduce,  ///< wait for it; the sharded gradient is there, the slot free
};

[[nodiscard]] constexpr bool is_marker(ActionKind kind) {
  return kind == ActionKind::Forward || kind == ActionKind::ForwardEnd ||
         kind == ActionKind::Backward || kind == ActionKind::BackwardEnd;
}

struct Action {
  ActionKind kind;
  int unit = 0;   ///< index into StepSchedule::units
  int slot = -1;  ///< buffer slot for Unshard and Backward; -1 where there is none

  bool operator==(const Action&) const = default;
};

/// What the schedule must know of a unit.
struct ScheduledUnit {
  std::string name;  ///< FQN; "" prints as "(root)"
  std::int64_t unsharded_bytes = 0;  ///< of one all-gather; 0: never gathered
  std::int64_t gradient_bytes = 0;   ///< of one reduction; 0: all frozen
  /// Kept unsharded from forward to backward; such a unit has slots of its own.
  bool kept = false;

  bool operator==(const ScheduledUnit&) const = default;
};

/// The ordered actions of one step: forward, backward and the communication in
/// between. A value: it can be made, edited, compared, printed; the executor
/// follows it, the planner prices it.
struct StepSchedule {
  std::vector<ScheduledUnit> units;
  std::vector<Action> actions;
  /// Bytes of each slot that holds unsharded parameters.
  std::vector<std::int64_t> parameter_slots;
  /// Bytes of each slot that holds gradients on their way to a reduction.
  std::vector<std::int64_t> gradient_slots;

  [[nodiscard]] bool empty() const { return actions.empty(); }
  bool operator==(const StepSchedule&) const = default;
};

/// A schedule for a program that passes `markers` in this order (recorded, or
/// made by forward_backward_markers).
///
/// Each unit is unsharded `prefetch` units ahead of its Forward and Backward,
/// resharded after both (after backward only where kept), and its reduction is
/// finished while the next unit's backward runs.
///
/// Throws std::invalid_argument for markers that no program can produce, such
///        as an end without a begin, or prefetch < 0
StepSchedule make_schedule(std::vector<ScheduledUnit> units,
                           std::span<const Action> markers, int prefetch);

/// The markers of a program whose root calls the other units once each, in the
/// order given: what a decoder does. units[0] is the root.
std::vector<Action> forward_backward_markers(
    std::span<const ScheduledUnit> units);

/// The first fault of a schedule in words ("action 7: forward of 'layers.0'
/// without an unshard before it"), empty when it can be followed: every Forward
/// and Backward finds its unit unsharded, every gradient is reduced once and
/// finished, a slot is used by one unit at a time and is large enough, and at
/// the end every unit is resharded.
std::string validate(const StepSchedule& schedule);

/// The schedule as a table: one line an action, with slots and the bytes
/// unsharded after it.
std::string to_table(const StepSchedule& schedule);

}  // namespace accordion
