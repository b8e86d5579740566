// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/schedule/agreed_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/schedule/schedule_support.h"

namespace accordion {
namespace {

using testing::code;
using testing::markers;
using Program = std::vector<Action>;

std::string text(std::span<const Action> actions) {
  std::string result;
  for (const Action& action : actions) {
    result += result.empty() ? "" : " ";
    result += code(action.kind) + std::to_string(action.unit);
  }
  return result;
}

struct Agreed {
  std::vector<Action> markers = {};
  std::vector<Turn> turns = {};  // those that count
  int rounds = 0;
};

/// Lets ranks with these programs take turns, each with an AgreedOrder of its
/// own, and holds them to what they must have in common.
Agreed agree(const std::vector<Program>& programs, int num_units,
             bool comes_back = true) {
  const std::size_t world = programs.size();
  std::vector<AgreedOrder> orders(world, AgreedOrder(num_units));
  std::vector<std::size_t> at(world, 0);
  std::vector<Program> passed(world);
  Agreed agreed;
  while (true) {
    std::vector<Arrival> arrivals(world);
    for (std::size_t rank = 0; rank < world; ++rank) {
      if (at[rank] < programs[rank].size()) {
        arrivals[rank] = {.marker = programs[rank][at[rank]],
                          .comes_back = comes_back};
      }
    }
    std::optional<Turn> common;
    int own = 0;
    for (std::size_t rank = 0; rank < world; ++rank) {
      const Turn turn = orders[rank].next(arrivals, static_cast<int>(rank));
      if (!common) {
        common = turn;
      }
      EXPECT_EQ(turn.marker, common->marker);
      EXPECT_EQ(turn.counts, common->counts);
      EXPECT_EQ(turn.comes_back, common->comes_back);
      EXPECT_EQ(turn.still_open, common->still_open);
      if (turn.own && turn.marker) {
        EXPECT_EQ(*turn.marker, programs[rank][at[rank]]);
        passed[rank].push_back(*turn.marker);
        ++at[rank];
        ++own;
      }
    }
    if (!common->marker) {
      break;
    }
    EXPECT_GT(own, 0) << "a turn that is nobody's";
    if (own == 0) {
      break;
    }
    ++agreed.rounds;
    if (common->counts) {
      agreed.markers.push_back(*common->marker);
      agreed.turns.push_back(*common);
    }
  }
  EXPECT_EQ(passed, programs);
  return agreed;
}

std::string agreed(const std::vector<std::string>& programs, int num_units) {
  std::vector<Program> parsed;
  for (const std::string& program : programs) {
    parsed.push_back(markers(program));
  }
  return text(agree(parsed, num_units).markers);
}

TEST(AgreedOrder, EqualProgramsTakeNoExtraTurns) {
  const auto program = forward_backward_markers(testing::decoder(3));
  const Agreed result = agree({program, program, program}, 4);
  EXPECT_EQ(result.markers, program);
  EXPECT_EQ(result.rounds, static_cast<int>(program.size()));
}

TEST(AgreedOrder, SkippedUnitIsWhereTheOthersHaveIt) {
  const std::string all = "F0 F1 f1 F2 f2 f0 B0 B2 b2 B1 b1 b0";
  EXPECT_EQ(agreed({all, "F0 F2 f2 f0 B0 B2 b2 b0"}, 3), all);
  EXPECT_EQ(agreed({"F0 F1 f1 f0 B0 B1 b1 b0", all}, 3), all);
  EXPECT_EQ(agreed({all, ""}, 3), all) << "a rank without data";
}

TEST(AgreedOrder, UnitsThatEachSkipsAreAllThere) {
  EXPECT_EQ(agreed({"F0 F1 f1 f0 B0 B1 b1 b0", "F0 F2 f2 f0 B0 B2 b2 b0"}, 3),
            "F0 F1 f1 F2 f2 f0 B0 B2 b2 B1 b1 b0");
}

TEST(AgreedOrder, SkippedChildOfAUnit) {
  EXPECT_EQ(
      agreed({"F0 F1 F2 f2 f1 f0 B0 B1 B2 b2 b1 b0", "F0 F1 f1 f0 B0 B1 b1 b0"},
             3),
      "F0 F1 F2 f2 f1 f0 B0 B1 B2 b2 b1 b0");
}

TEST(AgreedOrder, AUnitEndsWhenTheLastRankLeavesIt) {
  // Rank 0 comes to the end of 2's backward early: it used fewer parameters.
  EXPECT_EQ(agreed({"B2 b2 B1 b1", "B2 B1 b1 b2"}, 3), "B2 B1 b1 b2");
}

TEST(AgreedOrder, ARankEntersWhatOthersAreIn) {
  EXPECT_EQ(agreed({"F1 F2 f2 f1", "F2 F1 f1 f2"}, 3), "F1 F2 f1 f2")
      << "nested the other way round on each rank";
}

TEST(AgreedOrder, UnitThatCallsItself) {
  EXPECT_EQ(agreed({"F1 F1 f1 f1", "F1 F1 f1 f1"}, 2), "F1 F1 f1 f1");
  EXPECT_EQ(agreed({"F1 F1 f1 f1", "F1 f1"}, 2), "F1 F1 f1 f1");
}

TEST(AgreedOrder, EndsSayWhetherAnyCallComesBack) {
  const auto program = markers("F1 f1");
  EXPECT_TRUE(agree({program, program}, 2, true).turns[1].comes_back);
  EXPECT_FALSE(agree({program, program}, 2, false).turns[1].comes_back);
  AgreedOrder order(2);
  const auto both = [&](Arrival a, Arrival b) {
    return order.next(std::vector{a, b}, 0);
  };
  const Action begin{ActionKind::Forward, 1};
  const Action end{ActionKind::ForwardEnd, 1};
  both({begin}, {begin});
  const Turn first = both({end, /*comes_back=*/true}, {begin});
  EXPECT_FALSE(first.counts) << "the other rank is in it";
  EXPECT_TRUE(both({}, {end}).comes_back);
}

TEST(AgreedOrder, AnEarlierCallThatComesBackSaysNothingOfALaterOne) {
  AgreedOrder order(1);
  const auto pass = [&](ActionKind kind, bool comes_back) {
    return order.next(std::vector<Arrival>{{.marker = Action{kind, 0},
                                            .comes_back = comes_back}},
                      0);
  };
  pass(ActionKind::Forward, false);
  EXPECT_TRUE(pass(ActionKind::ForwardEnd, true).comes_back);
  pass(ActionKind::Forward, false);
  EXPECT_FALSE(pass(ActionKind::ForwardEnd, false).comes_back);
}

TEST(AgreedOrder, UnitCalledTwiceIsOpenUntilTheOuterCallEnds) {
  const Agreed result = agree({markers("F1 F1 f1 f1")}, 2);
  EXPECT_TRUE(result.turns[2].still_open);
  EXPECT_FALSE(result.turns[3].still_open);
}

TEST(AgreedOrder, EndWithoutABeginningIsRefused) {
  AgreedOrder order(1);
  EXPECT_THROW(
      (void)order.next(
          std::vector<Arrival>{{.marker = Action{ActionKind::ForwardEnd, 0}}},
          0),
      std::logic_error);
}

/// A program of random calls, and a backward of some of them in random order.
Program random_program(int num_units, std::mt19937& random) {
  Program program;
  std::vector<int> open;
  std::vector<int> called;
  const int length = static_cast<int>(random() % 12);
  for (int i = 0; i < length; ++i) {
    if (!open.empty() && random() % 2 == 0) {
      program.push_back({ActionKind::ForwardEnd, open.back()});
      open.pop_back();
    } else {
      const int unit = static_cast<int>(random() % num_units);
      program.push_back({ActionKind::Forward, unit});
      open.push_back(unit);
      called.push_back(unit);
    }
  }
  for (; !open.empty(); open.pop_back()) {
    program.push_back({ActionKind::ForwardEnd, open.back()});
  }
  std::vector<int> in_backward;
  while (!called.empty() || !in_backward.empty()) {
    std::vector<int>& from =
        !called.empty() && (in_backward.empty() || random() % 2 == 0)
            ? called
            : in_backward;
    const auto pick =
        from.begin() + static_cast<std::ptrdiff_t>(random() % from.size());
    const int unit = *pick;
    from.erase(pick);
    if (&from == &in_backward) {
      program.push_back({ActionKind::BackwardEnd, unit});
    } else if (std::find(in_backward.begin(), in_backward.end(), unit) ==
               in_backward.end()) {
      program.push_back({ActionKind::Backward, unit});
      in_backward.push_back(unit);
    }
  }
  return program;
}

TEST(AgreedOrder, AnyProgramsMakeOneThatCanBeScheduled) {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const int num_units = 1 + static_cast<int>(random() % 5);
    std::vector<Program> programs(1 + random() % 5);
    for (Program& program : programs) {
      program = random_program(num_units, random);
    }
    const Agreed result = agree(programs, num_units);
    const StepSchedule schedule = make_schedule(testing::decoder(num_units - 1),
                                                result.markers, {.depth = 1});
    EXPECT_EQ(validate(schedule), "") << text(result.markers);
    if (::testing::Test::HasFailure()) {
      for (const Program& program : programs) {
        ADD_FAILURE() << text(program);
      }
      return;
    }
  }
}

TEST(AgreedOrder, ManyRanksThatEachSkipAUnit) {
  constexpr int kRanks = 4096;
  constexpr int kUnits = 33;
  const auto all = forward_backward_markers(testing::decoder(kUnits - 1));
  std::vector<Program> programs(kRanks, all);
  for (int rank = 0; rank < kRanks; ++rank) {
    std::erase_if(programs[static_cast<std::size_t>(rank)],
                  [&](const Action& marker) {
                    return marker.unit == 1 + rank % (kUnits - 1);
                  });
  }
  AgreedOrder order(kUnits);
  std::vector<std::size_t> at(kRanks, 0);
  std::vector<Action> result;
  // One rank's view; who takes part follows from the arrivals.
  while (true) {
    std::vector<Arrival> arrivals(kRanks);
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      if (at[rank] < programs[rank].size()) {
        arrivals[rank].marker = programs[rank][at[rank]];
      }
    }
    const Turn turn = order.next(arrivals, 0);
    if (!turn.marker) {
      break;
    }
    if (turn.counts) {
      result.push_back(*turn.marker);
    }
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      at[rank] += arrivals[rank].marker == turn.marker ? 1 : 0;
    }
  }
  EXPECT_EQ(result, all);
}

}  // namespace
}  // namespace accordion
