// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/optimizer_options.h"

#include <cstdint>

#include "accordion/train/config_options.h"

namespace accordion {

AdamWOptions adamw_options(const TrainConfig& config) {
  AdamWOptions options;
  options.lr = config.optimizer.lr;
  options.beta1 = config.optimizer.betas[0];
  options.beta2 = config.optimizer.betas[1];
  options.eps = config.optimizer.eps;
  options.weight_decay = config.optimizer.weight_decay;
  options.moments_dtype =
      config.optimizer.moments_dtype == "bf16" ? c10::kBFloat16 : c10::kFloat;
  options.stochastic_rounding = config.optimizer.stochastic_rounding;
  options.rounding_seed = static_cast<std::uint64_t>(config.run.seed);
  const bool decay_norms = config.optimizer.decay_norms;
  options.decays = [decay_norms](const LocalParameter& parameter) {
    return decay_norms || parameter.global_shape.size() > 1;
  };
  // Of shards on a device's host, moments lie beside them.
  if (config.memory.offload != "none" && config.memory.offload_to != "host") {
    options.offload = offload_target(config);
  }
  return options;
}

StepInBackward::Options step_in_backward_options(const TrainConfig& config) {
  return {.max_norm = config.optimizer.clip_norm,
          .clip = config.optimizer.clip_in_backward == "unit_norm"
                      ? StepInBackward::Clip::UnitNorm
                      : StepInBackward::Clip::PreviousNorm,
          .skip_nonfinite = config.train.nonfinite != "allow"};
}

GradScalerOptions grad_scaler_options(const TrainConfig& config) {
  return {.init_scale = config.optimizer.loss_scale,
          .growth_interval = config.optimizer.loss_scale_interval,
          .max_skips = config.train.max_skips};
}

}  // namespace accordion
