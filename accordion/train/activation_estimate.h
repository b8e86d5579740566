// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "accordion/models/llama_config.h"
#include "accordion/train/train_config.h"

namespace accordion {

/// What forward and backward of a microbatch hold at most of activations, on a
/// rank, in bytes: what is saved for backward, and the largest of what is on
/// the way (the logits, or the gradients inside a layer).
///
/// From the shape alone; MemoryByKind::activations is what was counted.
[[nodiscard]] std::int64_t estimated_activations(const LlamaConfig& model,
                                                 const TrainConfig& config);

}  // namespace accordion
