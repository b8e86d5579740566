// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

#include <c10/util/Type.h>
#include <torch/nn/module.h>

// [Note: units are declared, then chosen]
// In C++ a unit is a type, so which modules could be units is written down when
// the program is. Declare them liberally (every block, every projection); a
// policy then decides at run time which of them become FSDP units. A unit that
// does not dissolves into the unit around it, which gathers its parameters with
// its own. The outermost unit always stays.
namespace accordion {

/// What a policy is asked about.
struct WrapQuery {
  std::string_view name;  ///< FQN of the module; "" for the root
  const torch::nn::Module& module;
  /// Elements of the parameters that the unit would gather: its own and those
  /// of the units inside it that were dissolved. Units inside come first.
  std::int64_t numel = 0;
};

/// Which of the declared units become FSDP units. A value.
///
///     wrap_types<BlockImpl>() | wrap_min_numel(10'000'000)
class WrapPolicy {
 public:
  using Predicate = std::function<bool(const WrapQuery&)>;

  /// All of them.
  WrapPolicy();
  /// `why` names the condition in reports: "numel >= 1000".
  WrapPolicy(std::string why, Predicate chooses);

  [[nodiscard]] bool chooses(const WrapQuery& query) const {
    return chooses_(query);
  }
  [[nodiscard]] const std::string& why() const { return why_; }

 private:
  std::string why_;
  Predicate chooses_;
};

/// Either, both. Parts are asked from left to right, as far as needed.
WrapPolicy operator|(const WrapPolicy& a, const WrapPolicy& b);
WrapPolicy operator&(const WrapPolicy& a, const WrapPolicy& b);

/// The smallest units of at least `numel` elements: going outwards, a unit
/// takes in what is too small to stand alone.
///
/// Throws c10::ValueError for numel < 1
WrapPolicy wrap_min_numel(std::int64_t numel);

/// Units whose module satisfies `predicate`; `why` names it in reports.
WrapPolicy wrap_if(std::string why, WrapPolicy::Predicate predicate);

/// Units around one of these modules, or a class derived from one.
template <class... Impl>
WrapPolicy wrap_types() {
  static_assert(sizeof...(Impl) > 0, "wrap_types<BlockImpl, …>()");
  std::string names;
  (..., (names +=
         (names.empty() ? "" : " or ") + c10::demangle(typeid(Impl).name())));
  return {
      "is " + names, [](const WrapQuery& query) {
        return (... || (dynamic_cast<const Impl*>(&query.module) != nullptr));
      }};
}

/// A declared unit.
struct WrapCandidate {
  std::string name = {};  ///< FQN of the module
  const torch::nn::Module* module = nullptr;
  int parent = -1;         ///< index of the candidate around it, before it; -1
  std::int64_t numel = 0;  ///< elements of the parameters that it owns
};

/// What became of a declared unit.
struct WrapDecision {
  std::string name = {};
  bool is_unit = true;
  /// Index of the unit that gathers its parameters; its own where is_unit.
  int owner = 0;
  /// Elements that it gathers, dissolved units included; its own where not
  /// is_unit.
  std::int64_t numel = 0;
  std::string why = {};
};

/// Decides about each candidate, in their order, inner ones first.
///
/// Requires  a candidate's parent stands before it
std::vector<WrapDecision> choose_units(
    const std::vector<WrapCandidate>& candidates, const WrapPolicy& policy);

/// The decisions as lines of text, for a log.
std::string to_text(const std::vector<WrapDecision>& decisions);

}  // namespace accordion
