// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/validate.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "accordion/plan/published_formulas.h"
#include "accordion/plan/published_row.h"
#include "accordion/plan/text_file.h"

namespace accordion::plan {
namespace {

using nlohmann::json;

constexpr double kGib = 1073741824.0;
constexpr const char* kMemoryGroup = "peak memory";

std::optional<double> number_of(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) {
    return std::nullopt;
  }
  return found->get<double>();
}

RowResult blank(const json& row) {
  RowResult result;
  result.id = row["id"].get<std::string>();
  result.primary = row.value("verified", "") == "primary";
  return result;
}

void add(std::vector<RowResult>& results, RowResult result, std::string metric,
         std::string group, std::optional<double> published, double predicted) {
  if (!published) {
    return;
  }
  result.metric = std::move(metric);
  result.group = std::move(group);
  result.published = published;
  result.predicted = predicted;
  results.push_back(std::move(result));
}

std::vector<RowResult> validate_run(const json& row) {
  const RowResult base = blank(row);
  const json published = row.value("results", json::object());
  const PublishedRun run = read_published_run(row);
  const Plan plan = make_plan(run.request);
  const std::string group(to_string(run.group));
  std::vector<RowResult> results;
  add(results, base, "tokens_per_s_per_gpu", group,
      number_of(published, "tokens_per_s_per_gpu"), plan.tokens_per_s_per_gpu);
  add(results, base, "tokens_per_s_total", group,
      number_of(published, "tokens_per_s_total"),
      plan.tokens_per_s_per_gpu * run.request.cluster.num_gpus());
  add(results, base, "peak_mem_gib", kMemoryGroup,
      number_of(published, "peak_mem_gib"), plan.memory.reserved_bytes / kGib);
  if (results.empty()) {
    throw std::invalid_argument("the row has no figure that is modelled");
  }
  return results;
}

/// The value below which `share` of the sorted values lie, interpolated.
double quantile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(place);
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return std::lerp(sorted[low], sorted[high], place - static_cast<double>(low));
}

GroupSummary summarize_group(const std::string& group,
                             std::span<const RowResult> results) {
  GroupSummary summary = {.group = group};
  std::vector<double> errors;
  double sum = 0.0;
  for (const RowResult& result : results) {
    if (result.group != group || !result.primary) {
      continue;
    }
    if (const std::optional<double> error = result.error()) {
      errors.push_back(std::abs(*error));
      sum += *error;
    } else {
      ++summary.not_modelled;
    }
  }
  summary.count = static_cast<int>(errors.size());
  if (errors.empty()) {
    return summary;
  }
  std::sort(errors.begin(), errors.end());
  summary.median = quantile(errors, 0.5);
  summary.percentile_90 = quantile(errors, 0.9);
  summary.largest = errors.back();
  summary.mean_signed = sum / static_cast<double>(errors.size());
  return summary;
}

}  // namespace

std::optional<double> RowResult::error() const {
  if (!published || !predicted || *published == 0.0) {
    return std::nullopt;
  }
  return *predicted / *published - 1.0;
}

std::vector<RowResult> validate_row(const json& row) {
  if (!row.is_object() || !row.contains("id") || !row["id"].is_string()) {
    throw std::invalid_argument(
        "[validate] Each row must be an object with a text 'id'.");
  }
  try {
    std::vector<RowResult> formulas = validate_formulas(row);
    return formulas.empty() ? validate_run(row) : formulas;
  } catch (const std::exception& error) {
    RowResult result = blank(row);
    result.group = "not modelled";
    result.reason = error.what();
    return {result};
  }
}

std::vector<RowResult> validate_rows(const json& rows) {
  if (!rows.is_array()) {
    throw std::invalid_argument(
        "[validate] The file must hold an array of rows.");
  }
  std::vector<RowResult> results;
  for (const json& row : rows) {
    for (RowResult& result : validate_row(row)) {
      results.push_back(std::move(result));
    }
  }
  return results;
}

std::vector<RowResult> validate_file(const std::string& path) {
  return validate_rows(read_json(path, "[validate]"));
}

std::string to_json_line(const RowResult& result) {
  nlohmann::ordered_json line;
  line["id"] = result.id;
  line["metric"] = result.metric;
  const auto set = [&](const char* key, std::optional<double> value) {
    if (value) {
      line[key] = *value;
    } else {
      line[key] = nullptr;
    }
  };
  set("published", result.published);
  set("predicted", result.predicted);
  set("error", result.error());
  line["group"] = result.group;
  line["primary"] = result.primary;
  if (!result.reason.empty()) {
    line["reason"] = result.reason;
  }
  return line.dump();
}

std::vector<GroupSummary> summarize(std::span<const RowResult> results) {
  std::vector<std::string> groups;
  for (const RowResult& result : results) {
    if (result.primary &&
        std::find(groups.begin(), groups.end(), result.group) == groups.end()) {
      groups.push_back(result.group);
    }
  }
  std::vector<GroupSummary> summary;
  for (const std::string& group : groups) {
    summary.push_back(summarize_group(group, results));
  }
  return summary;
}

std::string to_table(std::span<const GroupSummary> summary) {
  std::string table =
      "| group | figures | not modelled | median | 90th percentile | largest | "
      "mean, signed |\n|---|---|---|---|---|---|---|\n";
  for (const GroupSummary& group : summary) {
    table += fmt::format(
        "| {} | {} | {} | {:.1f} % | {:.1f} % | {:.1f} % | {:+.1f} % |\n",
        group.group, group.count, group.not_modelled, 100 * group.median,
        100 * group.percentile_90, 100 * group.largest,
        100 * group.mean_signed);
  }
  return table;
}

}  // namespace accordion::plan
