// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace accordion::plan {

/// One published figure beside the planner's.
struct RowResult {
  std::string id;
  std::string metric;    ///< "tokens_per_s_per_gpu", "peak_mem_gib", …
  std::string group;     ///< that it is judged with
  bool primary = false;  ///< taken from its source directly: it counts
  std::optional<double> published;
  std::optional<double> predicted;
  std::string reason;  ///< why there is no prediction

  /// predicted / published - 1, where there are both.
  [[nodiscard]] std::optional<double> error() const;
};

/// All figures of a row that the planner knows how to predict, one result each;
/// one result with a reason where there is none.
///
/// Throws std::invalid_argument for a row that is no object or has no id
std::vector<RowResult> validate_row(const nlohmann::json& row);

/// Those of all rows of a file of published runs, an array of them.
///
/// Throws std::invalid_argument if it is no array, and what validate_row() does
///        std::runtime_error if the file cannot be read
std::vector<RowResult> validate_rows(const nlohmann::json& rows);
std::vector<RowResult> validate_file(const std::string& path);

/// {"id": …, "metric": …, "published": …, "predicted": …, "error": …, "group":
/// …}, with "reason" where there is no prediction; no line break.
std::string to_json_line(const RowResult& result);

/// Absolute relative errors of the primary figures of a group.
struct GroupSummary {
  std::string group;
  int count = 0;         ///< with a prediction
  int not_modelled = 0;  ///< without one
  double median = 0.0;   ///< 0.03: 3 %
  double percentile_90 = 0.0;
  double largest = 0.0;
  double mean_signed = 0.0;  ///< above 0: the planner is too optimistic
};
std::vector<GroupSummary> summarize(std::span<const RowResult> results);

/// The summary as a Markdown table.
std::string to_table(std::span<const GroupSummary> summary);

}  // namespace accordion::plan
