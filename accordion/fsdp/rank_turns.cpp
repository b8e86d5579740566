// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/rank_turns.h"

#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "accordion/comm/gather_values.h"

namespace accordion {

namespace {

constexpr std::int32_t kOver = -1;

/// An arrival as it travels: marker or kOver, unit, whether it comes back.
using Packed = std::array<std::int32_t, 3>;

Packed pack(const Arrival& arrival) {
  if (!arrival.marker) {
    return {kOver, 0, 0};
  }
  return {static_cast<std::int32_t>(arrival.marker->kind), arrival.marker->unit,
          arrival.comes_back ? 1 : 0};
}

Arrival unpack(const Packed& packed) {
  if (packed[0] == kOver) {
    return {};
  }
  return {.marker = Action{static_cast<ActionKind>(packed[0]), packed[1]},
          .comes_back = packed[2] != 0};
}

}  // namespace

RankTurns::RankTurns(Communicator& world, std::string label,
                     std::vector<ScheduledUnit> units)
    : world_(world),
      label_(std::move(label)),
      units_(std::move(units)),
      order_(static_cast<int>(units_.size())) {}

Turn RankTurns::next(const Arrival& mine) {
  std::vector<Packed> all;
  try {
    all = gather_values(world_, pack(mine), label_);
  } catch (const CommError& error) {
    throw CommError(std::string(error.what()) + "\nThis rank came to " +
                    (mine.marker ? describe_marker(*mine.marker, units_)
                                 : "the end of its pass") +
                    ". The pass has no schedule yet, so every rank must run "
                    "one, or call join_pass, to agree on what is next.");
  }
  std::vector<Arrival> arrivals;
  for (const Packed& arrival : all) {
    arrivals.push_back(unpack(arrival));
  }
  return order_.next(arrivals, world_.rank());
}

}  // namespace accordion
