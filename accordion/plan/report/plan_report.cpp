// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/report/plan_report.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "accordion/plan/question/plan_keys.h"
#include "accordion/plan/report/units.h"

namespace accordion::plan {

PlanReport make_report(const PlanQuestion& question) {
  PlanReport report;
  report.request = resolved(question);
  report.plan = make_plan(report.request);
  report.prices = question.settings.prices;
  report.notes = question.notes;
  report.constraint = binding_constraint(report.request, report.plan);
  report.advice = worthwhile_changes(question, report.request, report.plan);
  return report;
}

std::string describe_model(const ModelShape& model) {
  return fmt::format(
      "{}: {} parameters, {} layers of {}, {} heads ({} of keys), {} tokens",
      model.name.empty() ? "model" : model.name,
      format_count(static_cast<double>(model.num_params())), model.num_layers,
      model.hidden_size, model.num_heads, model.num_kv_heads, model.vocab_size);
}

std::string describe_cluster(const Cluster& cluster) {
  const std::string gpus =
      fmt::format("{} {} ({} each), {} within a host", cluster.gpus_per_host,
                  cluster.gpu.name, format_gib(cluster.gpu.memory_bytes),
                  cluster.inside.name);
  return cluster.num_hosts == 1
             ? "1 host of " + gpus
             : fmt::format("{} hosts of {}, {} between", cluster.num_hosts,
                           gpus, cluster.between.name);
}

/// Settings that differ from the defaults, and those that everybody asks for.
std::string describe_settings(const PlanRequest& request) {
  static constexpr std::array<std::string_view, 9> kAlways = {
      "strategy",   "dp_shard", "dp_replicate", "seq_len",      "micro_batch",
      "grad_accum", "compute",  "optimizer",    "checkpointing"};
  PlanSettings settings;
  const PlanSettings defaults;
  settings.strategy = request.strategy;
  settings.training = request.training;
  settings.stack = request.stack;
  std::string text;
  for (const PlanKey& key : plan_keys()) {
    const bool always =
        std::find(kAlways.begin(), kAlways.end(), key.name) != kAlways.end();
    const std::string value = value_of(key, settings);
    if (always || value != value_of(key, defaults)) {
      text += fmt::format("{}{}={}", text.empty() ? "" : " ", key.name, value);
    }
  }
  return text;
}

std::string advice_keys(const PlanReport& report, const Advice& advice) {
  const ChangedPlan& changed = advice.changed;
  std::string keys = fmt::format("{}", fmt::join(changed.change.keys, " "));
  if (changed.request.cluster.num_gpus() != report.request.cluster.num_gpus()) {
    keys = fmt::format("--cluster {}{}{}", short_name(changed.request.cluster),
                       keys.empty() ? "" : " ", keys);
  }
  return keys;
}

std::string short_name(const Cluster& cluster) {
  return cluster.num_hosts == 1
             ? fmt::format("{}x{}", cluster.gpus_per_host, cluster.gpu.name)
             : fmt::format("{}x{}x{}", cluster.num_hosts, cluster.gpus_per_host,
                           cluster.gpu.name);
}

}  // namespace accordion::plan
