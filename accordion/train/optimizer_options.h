// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "accordion/optim/adamw.h"
#include "accordion/optim/grad_scaler.h"
#include "accordion/optim/step_in_backward.h"
#include "accordion/train/train_config.h"

namespace accordion {

/// What a configuration says of the optimizer, in the words of optim/.
AdamWOptions adamw_options(const TrainConfig& config);
/// With memory.optimizer_in_backward.
StepInBackward::Options step_in_backward_options(const TrainConfig& config);
/// With fsdp.param_dtype = "fp16".
GradScalerOptions grad_scaler_options(const TrainConfig& config);

}  // namespace accordion
