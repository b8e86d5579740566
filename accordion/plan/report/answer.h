// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "accordion/plan/question/plan_question.h"
#include "accordion/plan/report/text_style.h"

namespace accordion::plan {

/// What is asked of a question.
enum class AnswerKind : std::uint8_t {
  Plan,      ///< one plan, as the keys say
  Search,    ///< the fastest that fit
  Compare,   ///< two, side by side
  MaxModel,  ///< the largest model that fits
  MinGpus,   ///< the fewest GPUs that a model fits
};

struct AnswerOptions {
  AnswerKind kind = AnswerKind::Plan;
  /// Compare: two lists "KEY=VALUE,KEY=VALUE" on top of the question's keys;
  /// `cluster` and `model` are keys too.
  std::vector<std::string> compared = {};
  bool json = false;
  /// Also written here as one page of HTML; empty: not.
  std::string html_path = {};
  TextStyle style = {};
};

/// The answer as text, or as JSON.
///
/// Throws std::invalid_argument that names what is wrong and the nearest valid
///        value; std::runtime_error for files that cannot be read or written
std::string answer(const PlanInput& input, const AnswerOptions& options);

}  // namespace accordion::plan
