// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/config_options.h"

#include <sched.h>

#include <algorithm>
#include <string>

namespace accordion {
namespace {

c10::ScalarType scalar_type(const std::string& name) {
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

int usable_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  const bool known = ::sched_getaffinity(0, sizeof(cores), &cores) == 0;
  return known ? CPU_COUNT(&cores) : 1;
}

}  // namespace

FsdpOptions fsdp_options(const TrainConfig& config) {
  FsdpOptions options;
  options.strategy = config.fsdp.strategy == "no_shard" ? Strategy::NoShard
                                                        : Strategy::FullShard;
  options.precision.param_dtype = scalar_type(config.fsdp.param_dtype);
  options.precision.reduce_dtype = scalar_type(config.fsdp.reduce_dtype);
  options.reshard_after_forward = config.fsdp.reshard_after_forward;
  options.prefetch = static_cast<int>(config.fsdp.prefetch);
  // The trainer fills the pieces after sharding.
  options.verify_parameters = false;
  return options;
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

int compute_threads(const TrainConfig& config, const Rendezvous& rendezvous) {
  if (config.train.threads > 0) {
    return static_cast<int>(config.train.threads);
  }
  return std::max(1, usable_cores() / rendezvous.local_world_size);
}

}  // namespace accordion
