// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/config_options.h"

#include <filesystem>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>

#include <fmt/format.h>

#include "accordion/models/llama_layers.h"

namespace accordion {
namespace {

c10::ScalarType scalar_type(const std::string& name) {
  if (name == "fp16") {
    return c10::ScalarType::Half;
  }
  return name == "bf16" ? c10::ScalarType::BFloat16 : c10::ScalarType::Float;
}

LrDecay lr_decay(const std::string& name) {
  if (name == "cosine") {
    return LrDecay::Cosine;
  }
  if (name == "linear") {
    return LrDecay::Linear;
  }
  return name == "wsd" ? LrDecay::Wsd : LrDecay::Constant;
}

Strategy strategy_of(const std::string& name) {
  if (name == "shard_grad_op") {
    return Strategy::ShardGradOp;
  }
  if (name == "shard_optimizer") {
    return Strategy::ShardOptimizer;
  }
  return name == "no_shard" ? Strategy::NoShard : Strategy::FullShard;
}

std::optional<Accumulation> accumulation_of(const std::string& name) {
  if (name == "auto") {
    return std::nullopt;
  }
  if (name == "unsharded") {
    return Accumulation::Unsharded;
  }
  return name == "sharded" ? Accumulation::Sharded
                           : Accumulation::DeferredAllReduce;
}

std::int64_t num_replicas(const TrainConfig& config,
                          const Rendezvous& rendezvous) {
  if (config.fsdp.replicas > 0) {
    return config.fsdp.replicas;
  }
  if (config.fsdp.strategy != "hybrid") {
    return 1;
  }
  const int hosts = rendezvous.world_size / rendezvous.local_world_size;
  return hosts > 1 ? hosts : 2;
}

}  // namespace

FsdpOptions fsdp_options(const TrainConfig& config) {
  FsdpOptions options;
  options.strategy = strategy_of(config.fsdp.strategy);
  options.precision.param_dtype = scalar_type(config.fsdp.param_dtype);
  options.precision.reduce_dtype = scalar_type(config.fsdp.reduce_dtype);
  options.reshard_after_forward = config.fsdp.reshard_after_forward;
  options.reshard_to_ranks = static_cast<int>(config.fsdp.reshard_to_ranks);
  options.prefetch = static_cast<int>(config.fsdp.prefetch);
  options.prefetch_bytes = config.fsdp.prefetch_bytes;
  options.accumulation = accumulation_of(config.fsdp.accumulation);
  options.keep_parameters_across_microbatches = config.fsdp.keep_parameters;
  options.min_shard_numel = config.fsdp.min_shard_numel;
  options.copies_in_place = config.fsdp.copies_in_place;
  if (const auto every =
          checkpointed_every(config.memory.activation_checkpointing).value();
      every > 0) {
    options.activation_checkpointing = ActivationCheckpointing{
        .units = wrap_types<DecoderLayerImpl>(), .every = every};
    if (config.memory.offload_activations) {
      options.activation_checkpointing->offload = offload_target(config);
    }
  }
  options.step_in_backward = config.memory.optimizer_in_backward;
  const bool parameters = config.memory.offload == "parameters";
  if (parameters || config.memory.offload == "gradients") {
    options.offload = OffloadPolicy{.to = offload_target(config),
                                    .gradients = !options.step_in_backward,
                                    .parameters = parameters};
  }
  // Values come from the seed alone, or are filled in after sharding.
  options.verify_parameters = false;
  return options;
}

OffloadTarget offload_target(const TrainConfig& config) {
  const std::string& to = config.memory.offload_to;
  if (to == "host") {
    // As much as there is. Lives as long as the process, as what it holds may.
    static HostPool host(std::numeric_limits<std::int64_t>::max());
    return offload_to_host(host);
  }
  return offload_to_nvme(to == "nvme" ? std::filesystem::current_path()
                                      : std::filesystem::path(to));
}

std::vector<MeshAxis> mesh_axes(const TrainConfig& config,
                                const Rendezvous& rendezvous) {
  const std::int64_t replicas = num_replicas(config, rendezvous);
  if (rendezvous.world_size % replicas != 0) {
    throw std::invalid_argument(fmt::format(
        "[config] {} replicas do not divide {} ranks{}. Set fsdp.replicas to a "
        "divisor of the number of ranks.",
        replicas, rendezvous.world_size,
        config.fsdp.replicas == 0 ? " (fsdp.replicas is 0: one a host, or 2)"
                                  : ""));
  }
  const std::int64_t shard = rendezvous.world_size / replicas;
  const std::int64_t secondary = config.fsdp.reshard_to_ranks;
  if (secondary > 0 && shard % secondary != 0) {
    throw std::invalid_argument(
        fmt::format("[config] 'fsdp.reshard_to_ranks' is {}, which does not "
                    "divide the {} ranks of a replica.",
                    secondary, shard));
  }
  const MeshAxis inner{.name = "shard", .size = static_cast<int>(shard)};
  if (replicas == 1) {
    return {inner};
  }
  return {{.name = "replicate", .size = static_cast<int>(replicas)}, inner};
}

LrSchedule lr_schedule(const TrainConfig& config) {
  return {.decay = lr_decay(config.schedule.name),
          .peak = config.optimizer.lr,
          .warmup_steps = config.schedule.warmup_steps,
          .total_steps = config.train.steps,
          .min_ratio = config.schedule.min_lr_ratio,
          .decay_steps = config.schedule.decay_steps,
          .shape = config.schedule.decay_shape == "linear"
                       ? WsdShape::Linear
                       : WsdShape::OneMinusSqrt};
}

int compute_threads(const TrainConfig& config, int cores) {
  return config.train.threads > 0 ? static_cast<int>(config.train.threads)
                                  : cores;
}

}  // namespace accordion
