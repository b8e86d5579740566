// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/published_row.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "accordion/plan/known_models.h"
#include "accordion/plan/model_config.h"
#include "accordion/plan/nearest_name.h"
#include "accordion/plan/published_network.h"
#include "accordion/plan/published_training.h"

namespace accordion::plan {
namespace {

using nlohmann::json;

using detail::contains;
using detail::count_of;
using detail::text_of;

[[noreturn]] void fail(const std::string& why) {
  throw std::invalid_argument(why);
}

/// Where a row was published says with what it ran.
struct SourceOfStack {
  std::string_view part;
  std::string_view stack;
};
constexpr std::array<SourceOfStack, 12> kSources = {{
    {"llm-foundry", "llm-foundry"},
    {"torchtitan", "torchtitan"},
    {"torchtune", "torchtune"},
    {"fms-fsdp", "fms-fsdp"},
    {"pytorch.github.io", "fms-fsdp"},
    {"megatron", "megatron"},
    {"dgxc", "megatron"},
    {"nemo", "megatron"},
    {"2104.04473", "megatron"},
    {"deepspeed", "deepspeed"},
    {"pythia", "deepspeed"},
    {"2304.11277", "fms-fsdp"},
}};

const SoftwareStack& stack_of(const json& row) {
  const std::string source =
      row.contains("source") ? normalized(row["source"].dump()) : "";
  const std::string id = text_of(row, "id");
  // Float8 and 405B figures of torchtitan appeared on pytorch.org as well.
  if (id.starts_with("tt-")) {
    return find_stack("torchtitan");
  }
  for (const SourceOfStack& known : kSources) {
    if (contains(source, known.part)) {
      return find_stack(known.stack);
    }
  }
  return find_stack("torchtitan");
}

ModelShape shape_of(const json& row) {
  const json shape = row.value("shape", json::object());
  const std::string name = row.value("model", "");
  if (shape.is_object() && shape.contains("d_ff") &&
      shape["d_ff"].is_number()) {
    return model_from_published(shape, name);
  }
  if (const std::optional<ModelShape> known = known_model(name)) {
    return *known;
  }
  fail("the row has no shape of the model");
}

Sharding sharding_of(const json& parallel, const SoftwareStack& stack) {
  if (parallel.contains("zero_stage")) {
    const int stage = count_of(parallel, "zero_stage", 0);
    return stage == 1   ? Sharding::ShardOptimizer
           : stage == 2 ? Sharding::DeepSpeedZero2
                        : Sharding::FullShard;
  }
  const std::string name = text_of(parallel, "strategy");
  if (name == "shard-grad-op") {
    return Sharding::ShardGradOp;
  }
  // Megatron's distributed optimizer, but for rows of its FSDP.
  if (stack.name == "megatron" && !parallel.value("fsdp", false)) {
    return Sharding::ShardOptimizer;
  }
  return Sharding::FullShard;
}

Strategy strategy_of(const json& row, const SoftwareStack& stack,
                     const ModelShape& model) {
  if (!row.contains("parallel") || !row["parallel"].is_object()) {
    fail("the row has no parallel layout");
  }
  const json& parallel = row["parallel"];
  if (!parallel.contains("dp_shard") && !parallel.contains("dp")) {
    fail("the row has no number of data-parallel ranks");
  }
  Strategy strategy;
  strategy.sharding = sharding_of(parallel, stack);
  strategy.dp_shard =
      count_of(parallel, "dp_shard", count_of(parallel, "dp", 0));
  strategy.dp_replicate = count_of(parallel, "dp_replicate", 1);
  strategy.tensor = count_of(parallel, "tp", 1);
  strategy.pipeline = count_of(parallel, "pp", 1);
  strategy.context = count_of(parallel, "cp", 1);
  if (strategy.dp_shard < 1) {
    // Not stated: what the others leave.
    strategy.dp_shard = 1;
    strategy.dp_shard =
        static_cast<int>(count_of(row, "n_gpus", 1) / strategy.num_gpus());
  }
  strategy.overlap_tensor =
      parallel.value("async_tp", false) || stack.name == "megatron";
  strategy.stages_per_rank = count_of(parallel, "vp", 1);
  if (stack.name == "megatron" && strategy.pipeline > 1 &&
      strategy.stages_per_rank == 1) {
    // Its recipes interleave stages of two layers.
    const auto layers = static_cast<int>(model.num_layers);
    strategy.stages_per_rank = std::max(1, layers / strategy.pipeline / 2);
  }
  if (contains(text_of(parallel, "schedule"), "interleaved")) {
    strategy.stages_per_rank = std::max(2, strategy.stages_per_rank);
  }
  // Figures of 7B and 13B that fms-fsdp took with HSDP: copies in a host.
  if (contains(text_of(parallel, "note"), "7b/13b-used-hsdp") &&
      (contains(text_of(row, "model"), "7b") ||
       contains(text_of(row, "model"), "13b")) &&
      strategy.dp_shard % 8 == 0) {
    strategy.dp_replicate = strategy.dp_shard / 8;
    strategy.dp_shard = 8;
  }
  return strategy;
}

RowGroup group_of(const json& row, const PlanRequest& request) {
  if (text_of(row, "kind") == "training-run") {
    return RowGroup::TrainingRun;
  }
  if (request.stack.name == "llm-foundry") {
    return RowGroup::Foundry;
  }
  const Strategy& strategy = request.strategy;
  if (strategy.tensor * strategy.pipeline * strategy.context > 1) {
    return RowGroup::ModelParallel;
  }
  return request.training.precision.compute == ComputeType::Fp8
             ? RowGroup::EightBit
             : RowGroup::DataParallel;
}

}  // namespace

std::string_view to_string(RowGroup group) {
  switch (group) {
    case RowGroup::Foundry:
      return "llm-foundry";
    case RowGroup::DataParallel:
      return "data parallel, 16 bits";
    case RowGroup::EightBit:
      return "data parallel, 8 bits";
    case RowGroup::ModelParallel:
      return "tensor, pipeline or context parallel";
    case RowGroup::TrainingRun:
      return "training run";
  }
  return "unknown";
}

PublishedRun read_published_run(const json& row) {
  if (text_of(row, "kind") == "training-run" && text_of(row, "gpu").empty()) {
    fail("the row names no GPU");
  }
  const std::string id = text_of(row, "id");
  if (contains(id, "lora")) {
    fail("adapters (LoRA) are not modelled");
  }
  PublishedRun run;
  PlanRequest& request = run.request;
  request.stack = stack_of(row);
  request.model = shape_of(row);
  request.strategy = strategy_of(row, request.stack, request.model);
  request.training = published_training(row, request.strategy, request.stack);
  request.cluster = published_cluster(row);
  run.group = group_of(row, request);
  // A paged optimizer's state goes to the host where it does not fit.
  if (request.stack.name == "torchtune" && !make_plan(request).fits) {
    request.strategy.offload.optimizer = OffloadTo::Host;
    request.strategy.offload.step_on_device = true;
  }
  return run;
}

}  // namespace accordion::plan
