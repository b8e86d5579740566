// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/wrap_policy.h"

#include <algorithm>
#include <utility>

#include <c10/util/Exception.h>

namespace accordion {

namespace {

std::string label(const std::string& name) {
  return name.empty() ? "(root)" : name;
}

}  // namespace

WrapPolicy::WrapPolicy()
    : WrapPolicy("every declared unit", [](const WrapQuery&) { return true; }) {
}

WrapPolicy::WrapPolicy(std::string why, Predicate chooses)
    : why_(std::move(why)), chooses_(std::move(chooses)) {
  TORCH_CHECK_VALUE(chooses_, "[WrapPolicy] '", why_,
                    "' has no predicate; pass a function of a WrapQuery");
}

WrapPolicy operator|(const WrapPolicy& a, const WrapPolicy& b) {
  return {"(" + a.why() + " or " + b.why() + ")",
          [a, b](const WrapQuery& query) {
            return a.chooses(query) || b.chooses(query);
          }};
}

WrapPolicy operator&(const WrapPolicy& a, const WrapPolicy& b) {
  return {"(" + a.why() + " and " + b.why() + ")",
          [a, b](const WrapQuery& query) {
            return a.chooses(query) && b.chooses(query);
          }};
}

WrapPolicy wrap_min_numel(std::int64_t numel) {
  TORCH_CHECK_VALUE(numel >= 1, "[wrap_min_numel] numel is ", numel,
                    "; it counts elements, 1 or more");
  return {c10::str("numel >= ", numel),
          [numel](const WrapQuery& query) { return query.numel >= numel; }};
}

WrapPolicy wrap_if(std::string why, WrapPolicy::Predicate predicate) {
  return {std::move(why), std::move(predicate)};
}

std::vector<WrapDecision> choose_units(
    const std::vector<WrapCandidate>& candidates, const WrapPolicy& policy) {
  const int count = static_cast<int>(candidates.size());
  std::vector<WrapDecision> decisions;
  for (const WrapCandidate& candidate : candidates) {
    decisions.push_back({.name = candidate.name, .numel = candidate.numel});
  }
  // Inner before outer, so that what dissolves is known to the unit around it.
  for (int i = count - 1; i >= 0; --i) {
    const WrapCandidate& candidate = candidates[static_cast<std::size_t>(i)];
    WrapDecision& decision = decisions[static_cast<std::size_t>(i)];
    TORCH_INTERNAL_ASSERT(candidate.parent < i, "a unit stands before '",
                          label(candidate.name), "', which is around it");
    decision.is_unit =
        candidate.parent < 0 ||
        policy.chooses({candidate.name, *candidate.module, decision.numel});
    decision.why = candidate.parent < 0
                       ? "outermost"
                       : (decision.is_unit ? "" : "not ") + policy.why();
    if (!decision.is_unit) {
      decisions[static_cast<std::size_t>(candidate.parent)].numel +=
          decision.numel;
    }
  }
  for (int i = 0; i < count; ++i) {
    WrapDecision& decision = decisions[static_cast<std::size_t>(i)];
    const int parent = candidates[static_cast<std::size_t>(i)].parent;
    decision.owner = decision.is_unit
                         ? i
                         : decisions[static_cast<std::size_t>(parent)].owner;
  }
  return decisions;
}

std::string to_text(const std::vector<WrapDecision>& decisions) {
  std::string text;
  for (const WrapDecision& decision : decisions) {
    text += c10::str(
        label(decision.name), ": ", decision.numel, " elements, ",
        decision.is_unit
            ? "unit"
            : c10::str("dissolved into ",
                       label(decisions[static_cast<std::size_t>(decision.owner)]
                                 .name)),
        " (", decision.why, ")\n");
  }
  return text;
}

}  // namespace accordion
