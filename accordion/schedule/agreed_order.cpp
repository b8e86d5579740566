// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/schedule/agreed_order.h"

#include <algorithm>
#include <stdexcept>

#include "accordion/schedule/unit_uses.h"

namespace accordion {

AgreedOrder::AgreedOrder(int num_units)
    : forwards_(static_cast<std::size_t>(num_units)),
      backwards_(static_cast<std::size_t>(num_units)),
      last_forward_(static_cast<std::size_t>(num_units), -1) {}

AgreedOrder::Calls& AgreedOrder::calls_of(const Action& marker) {
  return (is_of_forward(marker.kind)
              ? forwards_
              : backwards_)[static_cast<std::size_t>(marker.unit)];
}

/// Ranks that come to one marker take it together if they are the first to
/// enter, or the last to leave; the others before them, without effect.
void AgreedOrder::add_candidates(std::vector<Candidate>& candidates,
                                 const Action& marker,
                                 std::span<const Arrival> arrivals) {
  const Calls& calls = calls_of(marker);
  const bool begins = detail::begins(marker.kind);
  Candidate edge{.marker = marker, .counts = true};
  Candidate inside{.marker = marker, .counts = false};
  int deepest = 0;  // ranks in as many calls as any
  for (std::size_t rank = 0; rank < arrivals.size(); ++rank) {
    const int depth = calls.depth == 0 ? 0 : calls.of_rank[rank];
    deepest += depth == calls.depth ? 1 : 0;
    if (arrivals[rank].marker == marker) {
      if (!begins && depth == 0) {
        throw std::logic_error("[AgreedOrder] an end without a beginning");
      }
      (depth == calls.depth ? edge : inside)
          .ranks.push_back(static_cast<int>(rank));
    }
  }
  edge.counts = begins || static_cast<int>(edge.ranks.size()) == deepest;
  for (Candidate* candidate : {&edge, &inside}) {
    if (!candidate->ranks.empty()) {
      candidates.push_back(std::move(*candidate));
    }
  }
}

/// What goes first is smaller.
std::array<int, 4> AgreedOrder::order_of(const Candidate& candidate) const {
  const auto [kind, unit, slot] = candidate.marker;
  const int last_forward = last_forward_[static_cast<std::size_t>(unit)];
  const int counts = candidate.counts ? 1 : 0;
  switch (kind) {
    case ActionKind::ForwardEnd:
      return {counts, 0, unit, 0};
    case ActionKind::Forward:
      return {counts, 1, unit, 0};
    case ActionKind::BackwardEnd:
      return {counts, 2, -last_forward, -unit};
    default:
      return {counts, 3, -last_forward, -unit};
  }
}

Turn AgreedOrder::take(const Candidate& candidate,
                       std::span<const Arrival> arrivals, int rank) {
  const Action& marker = candidate.marker;
  Calls& calls = calls_of(marker);
  if (calls.depth == 0) {
    calls.of_rank.assign(arrivals.size(), 0);
    calls.comes_back = false;
  }
  const int step = detail::begins(marker.kind) ? 1 : -1;
  Turn turn{.marker = marker, .counts = candidate.counts};
  for (const int other : candidate.ranks) {
    calls.of_rank[static_cast<std::size_t>(other)] += step;
    calls.comes_back |= arrivals[static_cast<std::size_t>(other)].comes_back;
    turn.own |= other == rank;
  }
  if (candidate.counts) {
    calls.depth += step;
    ++num_turns_;
    if (marker.kind == ActionKind::ForwardEnd) {
      last_forward_[static_cast<std::size_t>(marker.unit)] = num_turns_;
    }
  }
  turn.comes_back = calls.comes_back;
  turn.still_open = calls.depth > 0;
  return turn;
}

Turn AgreedOrder::next(std::span<const Arrival> arrivals, int rank) {
  std::vector<Action> markers;
  for (const Arrival& arrival : arrivals) {
    if (arrival.marker && std::find(markers.begin(), markers.end(),
                                    *arrival.marker) == markers.end()) {
      markers.push_back(*arrival.marker);
    }
  }
  if (markers.empty()) {
    return {.own = true};
  }
  std::vector<Candidate> candidates;
  for (const Action& marker : markers) {
    add_candidates(candidates, marker, arrivals);
  }
  const auto first =
      std::min_element(candidates.begin(), candidates.end(),
                       [this](const Candidate& a, const Candidate& b) {
                         return order_of(a) < order_of(b);
                       });
  return take(*first, arrivals, rank);
}

}  // namespace accordion
