// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>

#include "accordion/comm/mesh_grid.h"
#include "accordion/comm/rendezvous.h"
#include "accordion/models/llama_config.h"
#include "accordion/train/train_config.h"

namespace accordion {

/// The configuration with what memory.activation_checkpointing = "auto" stands
/// for: of "none", "selective", every 8th layer to every 2nd and "full", which
/// cost more and more time, the first with which a rank is expected to hold no
/// more than memory.limit (estimated_memory, and a tenth of the activations to
/// spare, as they are estimated that well). Other configurations as they are.
///
/// Throws std::invalid_argument where not even "full" fits
TrainConfig with_checkpointing(const TrainConfig& config,
                               const LlamaConfig& model,
                               std::span<const MeshAxis> axes);

/// The same for a run; looks at its model only where there is a choice.
TrainConfig with_checkpointing(const TrainConfig& config,
                               const Rendezvous& rendezvous);

}  // namespace accordion
