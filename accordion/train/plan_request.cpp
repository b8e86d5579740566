// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/plan_request.h"

#include <stdexcept>

#include <fmt/format.h>

#include "accordion/train/planned_schedule.h"

namespace accordion {
namespace {

plan::Sharding sharding_of(const std::string& strategy) {
  if (strategy == "no_shard") {
    return plan::Sharding::NoShard;
  }
  if (strategy == "shard_optimizer") {
    return plan::Sharding::ShardOptimizer;
  }
  return strategy == "shard_grad_op" ? plan::Sharding::ShardGradOp
                                     : plan::Sharding::FullShard;
}

plan::ComputeType compute_type(const std::string& dtype) {
  if (dtype == "fp32") {
    return plan::ComputeType::Fp32;
  }
  return dtype == "fp16" ? plan::ComputeType::Fp16 : plan::ComputeType::Bf16;
}

/// Gradients go over the wire in the type of computation, unless they were
/// added up whole before.
plan::Precision precision_of(const TrainConfig& config) {
  const auto bytes = [](const std::string& dtype) {
    return dtype == "fp32" ? 4 : 2;
  };
  const bool added_up = config.train.grad_accumulation > 1 &&
                        (config.fsdp.accumulation == "unsharded" ||
                         (config.fsdp.accumulation == "auto" &&
                          config.fsdp.strategy == "shard_optimizer"));
  return {.compute = compute_type(config.fsdp.param_dtype),
          .gather_bytes = bytes(config.fsdp.param_dtype),
          .reduce_bytes = bytes(added_up ? config.fsdp.reduce_dtype
                                         : config.fsdp.param_dtype),
          .replica_bytes = 4};
}

plan::Training training_of(const TrainConfig& config) {
  plan::Training training{
      .seq_len = config.data.seq_len,
      .micro_batch = config.train.batch_size,
      .grad_accum = config.train.grad_accumulation,
      .precision = precision_of(config),
      .optimizer = config.optimizer.moments_dtype == "bf16"
                       ? plan::OptimizerType::AdamWBf16
                       : plan::OptimizerType::AdamW,
      .step_in_backward = config.memory.optimizer_in_backward};
  const std::string& checkpointing = config.memory.activation_checkpointing;
  const auto every = checkpointed_every(checkpointing).value_or(0);
  if (every > 0) {
    training.checkpointing = plan::Checkpointing::Full;
    training.checkpointed_share = 1.0 / static_cast<double>(every);
  } else if (checkpointing == "selective") {
    training.checkpointing = plan::Checkpointing::BetweenProducts;
  }
  const std::int64_t tokens = config.train.batch_size * config.data.seq_len;
  if (const std::int64_t chunk = config.memory.chunked_loss_tokens; chunk > 0) {
    training.loss_chunks = (tokens + chunk - 1) / chunk;
  }
  return training;
}

plan::Strategy plan_strategy(const TrainConfig& config,
                             std::span<const MeshAxis> axes) {
  plan::Strategy strategy{
      .sharding = sharding_of(config.fsdp.strategy),
      .dp_replicate = axis_size(axes, "replicate"),
      .dp_shard = axis_size(axes, "shard"),
      .secondary_shard = static_cast<int>(config.fsdp.reshard_to_ranks),
      .defer_all_reduce = config.fsdp.accumulation == "deferred_all_reduce",
      .prefetch = static_cast<int>(config.fsdp.prefetch),
      .offload = {}};
  const std::string& offload = config.memory.offload;
  const bool to_host = config.memory.offload_to == "host";
  const auto there_if = [to_host](bool offloaded) {
    return !offloaded ? plan::OffloadTo::None
           : to_host  ? plan::OffloadTo::Host
                      : plan::OffloadTo::Disk;
  };
  const bool parameters = offload == "parameters";
  strategy.offload = {
      .parameters = there_if(parameters),
      .optimizer = there_if(offload != "none"),
      .step_on_device = !to_host,
      .activations = there_if(config.memory.offload_activations),
      // Those of a unit that steps in backward are gone before.
      .gradients = there_if((parameters || offload == "gradients") &&
                            !config.memory.optimizer_in_backward)};
  return strategy;
}

}  // namespace

plan::ModelShape model_shape(const LlamaConfig& model) {
  return {.name = "llama",
          .num_layers = model.num_hidden_layers,
          .hidden_size = model.hidden_size,
          .num_heads = model.num_attention_heads,
          .num_kv_heads = model.num_key_value_heads,
          .head_dim = model.head_dim,
          .intermediate_size = model.intermediate_size,
          .vocab_size = model.vocab_size,
          .tied_embeddings = model.tie_word_embeddings,
          .qkv_bias = model.has_qkv_bias(),
          .linear_bias = model.attention_bias && model.mlp_bias,
          .sliding_window = model.sliding_window,
          .max_window_layers = model.max_window_layers};
}

plan::PlanRequest plan_request(const LlamaConfig& model,
                               const TrainConfig& config,
                               std::span<const MeshAxis> axes,
                               const plan::Cluster& cluster) {
  plan::PlanRequest request{.model = model_shape(model),
                            .cluster = cluster,
                            .strategy = plan_strategy(config, axes),
                            .training = training_of(config),
                            .stack = plan::find_stack("accordion")};
  request.stack.copies_in_place = config.fsdp.copies_in_place;
  if (request.strategy.num_gpus() != cluster.num_gpus()) {
    throw std::invalid_argument(fmt::format(
        "[plan_request] The cluster file describes {} ranks, but this run has "
        "{}. Measure again with `accordion bench calibrate --nproc {}`.",
        cluster.num_gpus(), request.strategy.num_gpus(),
        request.strategy.num_gpus()));
  }
  return request;
}

}  // namespace accordion
