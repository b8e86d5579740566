// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/wrap_policy.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "accordion/fsdp/unit_wrapping.h"
#include "tests/fsdp/models.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using torch::nn::Linear;

/// A root, two blocks, and two projections in the first block.
struct Tree {
  Unit<testing::UnitNet> root{0};
  Unit<testing::Block> block;
  Unit<Linear> projection{2, 2};
  std::vector<WrapCandidate> candidates = {
      {.name = "", .module = root.get(), .parent = -1, .numel = 5},
      {.name = "a", .module = block.get(), .parent = 0, .numel = 10},
      {.name = "a.q", .module = projection.get(), .parent = 1, .numel = 30},
      {.name = "a.k", .module = projection.get(), .parent = 1, .numel = 70},
      {.name = "b", .module = block.get(), .parent = 0, .numel = 40}};
};

std::string chosen_names(const WrapPolicy& policy) {
  std::string names;
  for (const auto& decision : choose_units(Tree().candidates, policy)) {
    if (decision.is_unit) {
      names += "/" + decision.name;
    }
  }
  return names;
}

TEST(WrapPolicy, TakesEveryDeclaredUnitByDefault) {
  EXPECT_EQ(chosen_names({}), "//a/a.q/a.k/b");
}

TEST(WrapPolicy, ChoosesByTypeAlsoOfTheModuleInsideAUnit) {
  EXPECT_EQ(chosen_names(wrap_types<testing::BlockImpl>()), "//a/b");
  EXPECT_EQ(chosen_names(wrap_types<torch::nn::LinearImpl>()), "//a.q/a.k");
  EXPECT_EQ(
      (chosen_names(wrap_types<testing::BlockImpl, torch::nn::LinearImpl>())),
      "//a/a.q/a.k/b");
}

TEST(WrapPolicy, SizeCountsWhatDissolvedInside) {
  EXPECT_EQ(chosen_names(wrap_min_numel(40)), "//a/a.k/b");  // 10 + 30 in a
  EXPECT_EQ(chosen_names(wrap_min_numel(41)), "//a.k");
  EXPECT_EQ(chosen_names(wrap_min_numel(100)), "//a") << "10 + 30 + 70";
  EXPECT_EQ(chosen_names(wrap_min_numel(1000)), "/");
}

TEST(WrapPolicy, ChoosesByPredicateOverNameModuleAndSize) {
  EXPECT_EQ(chosen_names(wrap_if("named k",
                                 [](const WrapQuery& query) {
                                   return query.name.ends_with(".k") &&
                                          query.numel == 70 &&
                                          query.module.parameters().size() == 2;
                                 })),
            "//a.k");
}

TEST(WrapPolicy, CombinesPolicies) {
  const auto blocks = wrap_types<testing::BlockImpl>();
  EXPECT_EQ(chosen_names(blocks | wrap_min_numel(70)), "//a/a.k/b");
  EXPECT_EQ(chosen_names(blocks & wrap_min_numel(50)), "//a");
}

TEST(WrapPolicy, DecisionsSayWhoGathersHowMuchAndWhy) {
  const auto decisions = choose_units(
      Tree().candidates, wrap_types<testing::BlockImpl>() & wrap_min_numel(50));
  EXPECT_EQ(decisions[0].numel, 45) << "own 5, and 40 of b";
  EXPECT_EQ(decisions[1].numel, 110);
  EXPECT_EQ(decisions[2].owner, 1);
  EXPECT_EQ(decisions[4].owner, 0);
  const std::string text = to_text(decisions);
  EXPECT_NE(text.find("(root): 45 elements, unit (outermost)\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("a.q: 30 elements, dissolved into a (not (is "),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("and numel >= 50)"), std::string::npos) << text;
}

TEST(WrapPolicy, RejectsASizeThatIsNone) {
  EXPECT_NE(testing::message_of<c10::ValueError>([] {
              wrap_min_numel(0);
            }).find("numel is 0"),
            std::string::npos);
  EXPECT_NE(testing::message_of<c10::ValueError>([] {
              wrap_if("nothing", nullptr);
            }).find("'nothing' has no predicate"),
            std::string::npos);
}

std::vector<UnitMembers> declared(Tree& tree) {
  std::vector<UnitMembers> units;
  for (const auto& candidate : tree.candidates) {
    UnitMembers members;
    members.name = candidate.name;
    members.parent = candidate.parent;
    MemberParameter parameter;
    parameter.name = candidate.name + ".p";
    parameter.tensor = torch::empty({candidate.numel});
    members.parameters.push_back(parameter);
    units.push_back(std::move(members));
  }
  units[0].unit = tree.root.get();
  units[1].unit = units[4].unit = tree.block.get();
  units[2].unit = units[3].unit = tree.projection.get();
  return units;
}

TEST(WrapUnits, MovesParametersToTheUnitAround) {
  Tree tree;
  const auto wrapped =
      wrap_units(declared(tree), wrap_types<torch::nn::LinearImpl>());
  ASSERT_EQ(wrapped.units.size(), 3U);
  const auto& root = wrapped.units[0];
  ASSERT_EQ(root.parameters.size(), 3U);
  EXPECT_EQ(root.parameters[0].name, ".p");
  EXPECT_EQ(root.parameters[1].name, "a.p");
  EXPECT_EQ(root.parameters[2].name, "b.p");
  EXPECT_EQ(wrapped.units[1].name, "a.q");
  EXPECT_EQ(wrapped.units[1].parent, 0) << "a dissolved, so the root is around";
  EXPECT_EQ(wrapped.units[2].parent, 0);
  EXPECT_EQ(wrapped.decisions.size(), 5U);
}

TEST(WrapUnits, KeepsAllByDefault) {
  Tree tree;
  const auto wrapped = wrap_units(declared(tree), WrapPolicy());
  ASSERT_EQ(wrapped.units.size(), 5U);
  EXPECT_EQ(wrapped.units[3].parent, 1);
  EXPECT_EQ(wrapped.units[3].parameters.size(), 1U);
}

}  // namespace
}  // namespace accordion
