// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
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
  Reduce,        ///< start the reduction of the gradients among the ranks
                 ///< that hold the pieces of one copy
  FinishReduce,  ///< wait for it; the gradient slot is free
  AllReduce,     ///< start the all-reduce of the sharded gradient over replicas
  FinishAllReduce,  ///< wait for it
  Step,     ///< the optimizer steps the parameters, whose sharded gradient is
            ///< freed
  Offload,  ///< the sharded gradient is on its way out of memory, and freed
};

[[nodiscard]] constexpr bool is_marker(ActionKind kind) {
  return kind == ActionKind::Forward || kind == ActionKind::ForwardEnd ||
         kind == ActionKind::Backward || kind == ActionKind::BackwardEnd;
}

[[nodiscard]] constexpr bool is_of_forward(ActionKind kind) {
  return kind == ActionKind::Forward || kind == ActionKind::ForwardEnd;
}

struct Action {
  ActionKind kind;
  int unit = 0;  ///< index into StepSchedule::units
  /// Buffer slot for Unshard and Backward, and for the Reduce of a unit that
  /// steps or offloads; -1 where there is none, as for one gathered in place.
  int slot = -1;

  bool operator==(const Action&) const = default;
};

/// What the schedule must know of a unit.
///
/// // [Note: pass]
/// A schedule covers one pass: a forward and its backward, one microbatch of a
/// step. What a pass finds and leaves is part of the unit's description, so
/// that first, middle and last microbatches are schedules of their own:
///
///   whole parameters kept across microbatches
///     first: ends_unsharded, middle: begins_unsharded and ends_unsharded,
///     last: begins_unsharded
///   gradients kept whole (no communication) until the last microbatch
///     first: not reduces, middle: begins_with_gradient and not reduces,
///     last: begins_with_gradient
///   all-reduce over replicas put off
///     all but the last: all_reduce_bytes = 0
struct ScheduledUnit {
  std::string name;                   ///< FQN; "" prints as "(root)"
  std::int64_t unsharded_bytes = 0;   ///< of one all-gather; 0: never gathered
  std::int64_t gradient_bytes = 0;    ///< of one reduction; 0: all frozen
  std::int64_t all_reduce_bytes = 0;  ///< over replicas; 0: none in this pass
  /// Of the sharded gradient, where that is freed in this pass: once the
  /// optimizer has stepped the unit, or it is on its way out of memory. 0: it
  /// stays for an optimizer after the pass.
  std::int64_t gradient_shard_bytes = 0;
  /// Which of the two: it is offloaded, and waits there for the optimizer.
  bool offloads_gradient = false;
  /// Its shards, or copies of them that stay, lie where they are gathered: it
  /// takes no slot, and is whole without memory of its own.
  bool in_place = false;
  /// Kept unsharded from forward to backward, in a slot of its own.
  bool kept = false;
  bool begins_unsharded = false;      ///< whole since the pass before
  bool ends_unsharded = false;        ///< stays whole for the pass behind
  bool begins_with_gradient = false;  ///< its slot holds a gradient to add to
  bool reduces = true;                ///< false: its gradient stays in its slot
  /// Units whose gathers start when this one's forward or backward begins, in
  /// place of the ones that come next.
  std::optional<std::vector<int>> forward_prefetch = std::nullopt;
  std::optional<std::vector<int>> backward_prefetch = std::nullopt;

  /// What it holds while it is unsharded.
  [[nodiscard]] std::int64_t parameter_slot_bytes() const {
    return in_place ? 0 : unsharded_bytes;
  }
  bool operator==(const ScheduledUnit&) const = default;
};

/// How far ahead of computation parameters are gathered.
struct Prefetch {
  /// Units ahead of the one that computes; 0 gathers each when it is needed.
  int depth = 1;
  /// Bytes ahead: no gather starts early when it would exceed them; 0: as many
  /// as depth says.
  std::int64_t max_bytes = 0;

  bool operator==(const Prefetch&) const = default;
};

/// How a unit is called in messages and tables: its name in quotes, or (root).
[[nodiscard]] std::string display_name(const ScheduledUnit& unit);

/// A marker in messages: "the end of the backward of unit 'layers.0'".
[[nodiscard]] std::string describe_marker(const Action& marker,
                                          std::span<const ScheduledUnit> units);

/// The ordered actions of one pass: forward, backward and the communication in
/// between. A value: it can be made, edited, compared, printed; the executor
/// follows it, the planner prices it.
struct StepSchedule {
  std::vector<ScheduledUnit> units;
  std::vector<Action> actions;
  /// Bytes of each slot that holds unsharded parameters.
  std::vector<std::int64_t> parameter_slots;
  /// Bytes of each slot that holds gradients on their way to a reduction.
  std::vector<std::int64_t> gradient_slots;
  /// Bytes of each slot that holds sharded gradients until their unit's step,
  /// or until they are offloaded.
  std::vector<std::int64_t> gradient_shard_slots;

  [[nodiscard]] bool empty() const { return actions.empty(); }
  bool operator==(const StepSchedule&) const = default;
};

/// A schedule for a program that passes `markers` in this order (recorded, or
/// made by forward_backward_markers).
///
/// Each unit is unsharded before its Forward and Backward, as far ahead as
/// `prefetch` says, and resharded when its last open forward call returns and
/// after its backward; a kept one only after its backward. Its reduction starts
/// at BackwardEnd and is finished when the next unit's has started; then its
/// all-reduce over replicas starts, finished one unit later again. A unit that
/// steps does so then, when it is sharded: its step lies in the backward of a
/// unit behind it, whose gather is in flight. A gradient that is offloaded is
/// so at the same place.
///
/// // [Note: last unit]
/// A unit is not resharded when its next unshard would be due at once, that is,
/// before or right after the beginning of the next unit: between its forward
/// and backward the last unit stays, and so does a unit that is called again
/// at once. It saves an all-gather and holds no more units at a time than
/// prefetching does anyway: `depth` + 1, where calls are not nested.
///
/// // [Note: slots]
/// Kept units have slots of their own, and so do gradients that stay for a
/// later pass or during which those of another unit come and go (the root's).
/// The others share slots of the size of the largest, as many as are in use at
/// a time, and one more for parameters where `depth` > 0; the one that has been
/// free longest is taken, so that its last readers on slower ranks are done
/// when it is written again. Sharded gradients take turns in as many slots as
/// are in use at a time.
///
/// Throws std::invalid_argument for markers that no program can produce, such
///        as an end without a begin, or prefetch below 0
StepSchedule make_schedule(std::vector<ScheduledUnit> units,
                           std::span<const Action> markers,
                           const Prefetch& prefetch);

/// The markers of a schedule: the program that it was made for.
std::vector<Action> markers_of(const StepSchedule& schedule);

/// The markers of a program whose root calls the other units once each, in the
/// order given: what a decoder does. units[0] is the root.
std::vector<Action> forward_backward_markers(
    std::span<const ScheduledUnit> units);

/// The first fault of a schedule in words ("action 7: forward of 'layers.0'
/// without an unshard before it"), empty when it can be followed: every Forward
/// and Backward finds its unit unsharded, every gradient is reduced once and
/// finished, and offloaded, or stepped with where its unit steps, which is
/// sharded then and has no backward behind it, a slot is used by one unit at a
/// time and is large enough, and at the end every unit is as its description
/// says.
std::string validate(const StepSchedule& schedule);

/// The most bytes of slots that hold unsharded parameters at a time.
std::int64_t peak_unsharded_bytes(const StepSchedule& schedule);

/// The schedule as a table: one line an action, with slots (p0 holds
/// parameters, g0 gradients, s0 sharded gradients; - where a unit is gathered
/// in place) and the bytes that unsharded parameters hold after it.
std::string to_table(const StepSchedule& schedule);

}  // namespace accordion
