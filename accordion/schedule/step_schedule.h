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
/// Forward, ForwardEnd, Backward and BackwardEnd are markers: the user's
/// program reaches them, and the executor does nothing but check the order (and
/// wait for the unit's all-gather at Forward and Backward). The others are
/// actions: the executor does them as soon as the marker before them is passed.
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
  int unit = 0;  ///< index into StepSchedule::units
  int slot =
      -1;  ///< buffer slot for Unshard and Backward; -1 where there is none

  bool operator==(const Action&) const = default;
};

/// What the schedule must know of a unit.
struct ScheduledUnit {
  std::string name;                  ///< FQN; "" prints as "(root)"
  std::int64_t unsharded_bytes = 0;  ///< of one all-gather; 0: never gathered
  std::int64_t gradient_bytes = 0;   ///< of one reduction; 0: all frozen
  /// Kept unsharded from forward to backward; such a unit has slots of its own.
  bool kept = false;

  bool operator==(const ScheduledUnit&) const = default;
};

/// How a unit is called in messages and tables: its name in quotes, or (root).
[[nodiscard]] std::string display_name(const ScheduledUnit& unit);

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
/// Each unit is unsharded before its Forward and Backward, `prefetch` units
/// ahead, and resharded when its last open forward call returns and after its
/// backward; a kept one only after its backward. Its reduction starts at
/// BackwardEnd and is finished when the next unit's has started.
///
/// // [Note: last unit]
/// A unit is not resharded when its next unshard would be due at once, that is,
/// before or right after the beginning of the next unit: between its forward
/// and backward the last unit stays, and so does a unit that is called again
/// at once. It saves an all-gather and holds no more units at a time than
/// prefetching does anyway: `prefetch` + 1, where calls are not nested.
///
/// // [Note: slots]
/// Kept units have slots of their own. The others share slots of the size of
/// the largest, as many as are in use at a time, and one more where `prefetch`
/// > 0; the one that has been free longest is taken, so that its last readers
/// on slower ranks are done when it is written again.
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

/// The most bytes of parameters that are unsharded at a time.
std::int64_t peak_unsharded_bytes(const StepSchedule& schedule);

/// The schedule as a table: one line an action, with slots (p0 holds
/// parameters, g0 gradients) and the bytes unsharded after it.
std::string to_table(const StepSchedule& schedule);

}  // namespace accordion
