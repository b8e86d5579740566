// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/published_formulas.h"

#include <nlohmann/json.hpp>

#include "accordion/plan/zero_formulas.h"

namespace accordion::plan {
namespace {

using nlohmann::json;

constexpr double kGb = 1e9;
constexpr double kGib = 1073741824.0;
constexpr double kMib = 1048576.0;

/// Collects the figures that a row publishes.
class FormulaRow {
 public:
  explicit FormulaRow(const json& row) : row_(row) {}

  void add(const char* metric, double predicted) {
    const json& published = row_["results"];
    if (!published.contains(metric) || !published[metric].is_number()) {
      return;
    }
    RowResult result;
    result.id = row_["id"].get<std::string>();
    result.metric = metric;
    result.group = "memory formulas";
    const std::string verified = row_.value("verified", "");
    result.primary = verified == "primary" || verified == "formula";
    result.published = published[metric].get<double>();
    result.predicted = predicted;
    results.push_back(std::move(result));
  }

  std::vector<RowResult> results;

 private:
  const json& row_;
};

double params_of(const json& row, const char* key) {
  const json& shape = row["shape"];
  return shape.is_object() && shape.contains(key) && shape[key].is_number()
             ? shape[key].get<double>()
             : 0.0;
}

void add_zero_paper(FormulaRow& row, double params, int ranks) {
  const auto gb = [&](Sharding sharding) {
    return zero_paper_bytes(params, ranks, sharding) / kGb;
  };
  row.add("baseline_gb", gb(Sharding::NoShard));
  row.add("p_os_gb", gb(Sharding::ShardOptimizer));
  row.add("p_os_g_gb", gb(Sharding::DeepSpeedZero2));
  row.add("p_os_g_p_gb", gb(Sharding::FullShard));
  // Master copy and two moments, of all parameters and of one rank's.
  row.add("adam_states_gb_unsharded", 12.0 * params / kGb);
  row.add("adam_states_gb_sharded_8", 12.0 * params / 8.0 / kGb);
}

DeepSpeedQuestion question_of(const json& row, double params, int ranks) {
  DeepSpeedQuestion question = {
      .params = params,
      .largest_layer_params = params_of(row, "largest_layer_params"),
      .gpus = ranks};
  const json parallel = row.value("parallel", json::object());
  if (parallel.is_object()) {
    question.stage = parallel.value("zero_stage", 3);
  }
  const json offload = row.value("offload", json());
  if (offload.is_object()) {
    const auto on_host = [&](const char* key) {
      return offload.contains(key) && offload[key] == "cpu";
    };
    question.parameters_on_host = on_host("param");
    question.optimizer_on_host = on_host("optimizer");
    question.zero_init =
        !offload.contains("zero_init") || offload["zero_init"] != 0;
  }
  return question;
}

void add_deepspeed(FormulaRow& row, const DeepSpeedQuestion& question) {
  const DeepSpeedAnswer answer = deepspeed_estimate(question);
  row.add("gpu_mem_gb", answer.gpu_bytes / kGib);
  row.add("cpu_mem_gb", answer.host_bytes / kGib);
  DeepSpeedQuestion other = question;
  row.add("gpu_mib_no_offload", answer.gpu_bytes / kMib);
  other.optimizer_on_host = true;
  row.add("gpu_mib_opt_offload", deepspeed_estimate(other).gpu_bytes / kMib);
  other.parameters_on_host = true;
  row.add("gpu_mib_full_offload", deepspeed_estimate(other).gpu_bytes / kMib);
}

}  // namespace

std::vector<RowResult> validate_formulas(const json& row) {
  const bool complete = row.contains("results") && row["results"].is_object() &&
                        row.contains("shape") && row.contains("n_gpus") &&
                        row["n_gpus"].is_number_integer();
  const double params = complete ? params_of(row, "params") : 0.0;
  if (params <= 0.0) {
    return {};
  }
  FormulaRow figures(row);
  const int ranks = row["n_gpus"].get<int>();
  add_zero_paper(figures, params, ranks);
  add_deepspeed(figures, question_of(row, params, ranks));
  return std::move(figures.results);
}

}  // namespace accordion::plan
