// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/unit_wrapping.h"

#include <iterator>
#include <utility>

namespace accordion {

namespace {

WrapCandidate candidate_of(const UnitMembers& members) {
  return {.name = members.name,
          .module = &module_of(members),
          .parent = members.parent,
          .numel = numel_of(members)};
}

}  // namespace

WrappedUnits wrap_units(std::vector<UnitMembers> declared,
                        const WrapPolicy& policy) {
  std::vector<WrapCandidate> candidates;
  for (const UnitMembers& members : declared) {
    candidates.push_back(candidate_of(members));
  }
  WrappedUnits result{.units = {},
                      .decisions = choose_units(candidates, policy)};
  std::vector<int> index_of(declared.size(), -1);  // among the chosen
  for (std::size_t i = 0; i < declared.size(); ++i) {
    UnitMembers& members = declared[i];
    const auto chosen_index = [&](int candidate) {
      return index_of[static_cast<std::size_t>(
          result.decisions[static_cast<std::size_t>(candidate)].owner)];
    };
    if (result.decisions[i].is_unit) {
      index_of[i] = static_cast<int>(result.units.size());
      if (members.parent >= 0) {
        members.parent = chosen_index(members.parent);
      }
      result.units.push_back(std::move(members));
      continue;
    }
    auto& into =
        result
            .units[static_cast<std::size_t>(chosen_index(static_cast<int>(i)))]
            .parameters;
    std::move(members.parameters.begin(), members.parameters.end(),
              std::back_inserter(into));
  }
  return result;
}

}  // namespace accordion
