// SPDX-License-Identifier: BSD-3-Clause
#include <nlohmann/json.hpp>

#include "accordion/plan/question/plan_keys.h"
#include "accordion/plan/report/plan_report.h"
#include "accordion/plan/report/run_cost.h"
#include "accordion/plan/report/time_parts.h"

namespace accordion::plan {
namespace {

using nlohmann::json;

json memory_json(const DeviceMemory& held) {
  json kinds = json::object();
  for (const DeviceMemoryKind& kind : kDeviceMemoryKinds) {
    kinds[std::string(kind.name)] = held.*kind.bytes;
  }
  kinds["total"] = held.total();
  return kinds;
}

json settings_json(const PlanReport& report) {
  PlanSettings settings;
  settings.strategy = report.request.strategy;
  settings.training = report.request.training;
  settings.stack = report.request.stack;
  settings.prices = report.prices;
  settings.batch_tokens = report.plan.tokens_per_step;
  json values = json::object();
  for (const PlanKey& key : plan_keys()) {
    values[std::string(key.name)] = value_of(key, settings);
  }
  return values;
}

json memory_plan_json(const PlanReport& report) {
  const MemoryPlan& memory = report.plan.memory;
  json timeline = json::array();
  for (const MemoryPoint& point : memory.timeline) {
    timeline.push_back(
        {{"when", point.when}, {"bytes", memory_json(point.held)}});
  }
  return {{"peak_when", memory.timeline[memory.peak].when},
          {"peak_bytes", memory_json(memory.highest())},
          {"reserved_bytes", memory.reserved_bytes},
          {"device_bytes", report.request.cluster.gpu.memory_bytes},
          {"host_bytes", memory.host_bytes},
          {"disk_bytes", memory.disk_bytes},
          {"timeline", std::move(timeline)}};
}

json time_json(const TimePlan& time) {
  json parts = json::object();
  for (const TimePart& part : time_parts(time)) {
    parts[std::string(part.name)] = part.seconds;
  }
  return {{"step_s", time.step_s},
          {"parts_s", std::move(parts)},
          {"exposed_s", time.exposed_s()},
          {"gather_s", time.gather_s},
          {"reduce_s", time.reduce_s},
          {"num_collectives", time.num_collectives},
          {"collective_bytes", time.collective_bytes}};
}

json advice_json(const PlanReport& report) {
  json all = json::array();
  for (const Advice& each : report.advice) {
    const ChangedPlan& changed = each.changed;
    all.push_back({{"keys", changed.change.keys},
                   {"gpus", changed.request.cluster.num_gpus()},
                   {"why", changed.change.why},
                   {"gain", each.gain},
                   {"tokens_per_s_per_gpu", changed.plan.tokens_per_s_per_gpu},
                   {"reserved_bytes", changed.plan.memory.reserved_bytes},
                   {"tokens_per_step", changed.plan.tokens_per_step}});
  }
  return all;
}

json cost_json(const PlanReport& report) {
  if (report.prices.train_tokens <= 0.0) {
    return nullptr;
  }
  const RunCost cost = run_cost(report.request, report.plan, report.prices);
  return {{"tokens", report.prices.train_tokens},
          {"steps", cost.steps},
          {"seconds", cost.seconds},
          {"gpu_hours", cost.gpu_hours},
          {"kwh", cost.kwh},
          {"gpu_cost", cost.gpu_cost},
          {"energy_cost", cost.energy_cost}};
}

}  // namespace

json to_json(const PlanReport& report) {
  const PlanRequest& request = report.request;
  const Plan& plan = report.plan;
  json result = {{"model", request.model.name},
                 {"num_params", request.model.num_params()},
                 {"cluster", describe_cluster(request.cluster)},
                 {"gpus", request.cluster.num_gpus()},
                 {"settings", settings_json(report)},
                 {"notes", report.notes},
                 {"fits", plan.fits},
                 {"memory", memory_plan_json(report)},
                 {"time", time_json(plan.time)},
                 {"tokens_per_step", plan.tokens_per_step},
                 {"tokens_per_s_per_gpu", plan.tokens_per_s_per_gpu},
                 {"mfu", plan.mfu},
                 {"model_flops_per_s_per_gpu", plan.model_flops_per_s_per_gpu},
                 {"run", cost_json(report)},
                 {"constraint", report.constraint},
                 {"advice", advice_json(report)}};
  if (!report.name.empty()) {
    result["name"] = report.name;
  }
  return result;
}

}  // namespace accordion::plan
