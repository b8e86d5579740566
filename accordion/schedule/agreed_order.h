// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "accordion/schedule/step_schedule.h"

namespace accordion {

/// Where one rank is in its program.
struct Arrival {
  /// The marker that it came to; none: its pass is over.
  std::optional<Action> marker = std::nullopt;
  /// At ForwardEnd: whether a backward of the call is to come.
  bool comes_back = false;
};

/// What comes next on every rank.
struct Turn {
  /// None: the pass is over on every rank.
  std::optional<Action> marker = std::nullopt;
  /// Whether this rank came to it; else it joins, and asks for another turn.
  bool own = false;
  /// False: the ranks that came to it enter what others are in, or leave what
  /// others stay in; nobody does anything.
  bool counts = true;
  /// At a ForwardEnd that counts: whether any rank's call comes back.
  bool comes_back = false;
  /// After an end that counts: whether the unit was called again inside.
  bool still_open = false;
};

/// One order for the markers of ranks whose programs differ.
///
/// // [Note: turns]
/// Ranks whose data needs other units pass other markers. While there is no
/// schedule, each tells the others the marker that it came to, and all choose
/// the same one to be next (a function of what everyone knows). A rank that
/// came to another marker joins: it gathers and frees the unit's parameters
/// with the others and contributes zero to its gradient. A unit's forward, or
/// backward, is over when the last rank leaves it. So every rank comes to all
/// of its own markers, in its own order, all ranks have the same collectives in
/// the same order, and nobody waits for what does not come.
///
/// The choice keeps extra turns few: forward goes before backward, what ends
/// before what begins, units in the order of their numbers in forward, and
/// opposite to the order of their forwards in backward.
class AgreedOrder {
 public:
  explicit AgreedOrder(int num_units);

  /// The turn that follows from where all ranks are, as seen by `rank`.
  ///
  /// Requires  arrivals has one entry a rank, each what its program comes to
  ///           after the last turn that was its own
  /// Throws    std::logic_error for an end of what its rank is not in
  Turn next(std::span<const Arrival> arrivals, int rank);

 private:
  /// Calls of one unit that are in progress, of its forward or its backward.
  struct Calls {
    int depth = 0;             ///< on the rank where most are
    std::vector<int> of_rank;  ///< valid where depth > 0
    bool comes_back = false;   ///< any that ended so far
  };
  /// A marker that some ranks came to, and which of them take it now.
  struct Candidate {
    Action marker = {};
    bool counts = true;
    std::vector<int> ranks = {};
  };
  Calls& calls_of(const Action& marker);
  void add_candidates(std::vector<Candidate>& candidates, const Action& marker,
                      std::span<const Arrival> arrivals);
  [[nodiscard]] std::array<int, 4> order_of(const Candidate& candidate) const;
  Turn take(const Candidate& candidate, std::span<const Arrival> arrivals,
            int rank);

  std::vector<Calls> forwards_;
  std::vector<Calls> backwards_;
  std::vector<int> last_forward_;  ///< number of the turn that ended it
  int num_turns_ = 0;
};

}  // namespace accordion
