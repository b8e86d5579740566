// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "accordion/plan/report/text_style.h"
#include "accordion/plan/search/advice.h"

namespace accordion::plan {

/// An answer with all that is shown of it.
struct PlanReport {
  std::string name;  ///< what tells it from others beside it; may be empty
  PlanRequest request;
  Plan plan;
  Prices prices;
  std::vector<std::string> notes;
  std::string constraint;
  std::vector<Advice> advice;
};

/// Plans a question, with advice.
///
/// Throws what resolved() and check() do
PlanReport make_report(const PlanQuestion& question);

/// Model, cluster and settings in one line each.
[[nodiscard]] std::string describe_model(const ModelShape& model);
[[nodiscard]] std::string describe_cluster(const Cluster& cluster);
[[nodiscard]] std::string describe_settings(const PlanRequest& request);

/// What to write for a change: its keys, and more GPUs where it has them.
[[nodiscard]] std::string advice_keys(const PlanReport& report,
                                      const Advice& advice);
/// "16x8xH100-80GB", "8xA100-80GB".
[[nodiscard]] std::string short_name(const Cluster& cluster);

/// A readable page: memory by kind and over the step, time, speed, cost, what
/// limits it, what to change.
std::string to_text(const PlanReport& report, const TextStyle& style);

/// All of it, numbers in base units: bytes, seconds, tokens a second.
nlohmann::json to_json(const PlanReport& report);

}  // namespace accordion::plan
