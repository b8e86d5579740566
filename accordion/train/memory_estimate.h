// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>

#include "accordion/comm/mesh_grid.h"
#include "accordion/models/llama_config.h"
#include "accordion/schedule/memory_by_kind.h"
#include "accordion/train/train_config.h"

namespace accordion {

/// What a rank will hold when it holds most, from shapes alone: without a step,
/// or a second rank. Parameters, gradients, optimizer and slots are those of
/// the layouts and the schedule; activations are estimated_activations.
///
/// `axes` are those of the mesh; `shares_memory`: ranks of its shard axis do,
/// all of them, and so have one copy of gathered parameters in common, or are
/// gathered in place.
[[nodiscard]] MemoryByKind estimated_memory(const LlamaConfig& model,
                                            const TrainConfig& config,
                                            std::span<const MeshAxis> axes,
                                            bool shares_memory);

/// Whether they will, as far as the configuration says: where it leaves the
/// backend to the mesh, on one host.
[[nodiscard]] bool shares_memory(const TrainConfig& config);

}  // namespace accordion
