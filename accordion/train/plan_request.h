// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>

#include "accordion/comm/mesh_grid.h"
#include "accordion/models/llama_config.h"
#include "accordion/plan/plan.h"
#include "accordion/train/train_config.h"

namespace accordion {

/// The shape of a model in the planner's words. A bias of the attention's
/// output alone has none there, and is left out.
[[nodiscard]] plan::ModelShape model_shape(const LlamaConfig& model);

/// What a run does, as a question to the planner: its model, on `cluster`,
/// which has as many devices as the mesh of `axes` has ranks.
///
/// Throws std::invalid_argument where it has another number
[[nodiscard]] plan::PlanRequest plan_request(const LlamaConfig& model,
                                             const TrainConfig& config,
                                             std::span<const MeshAxis> axes,
                                             const plan::Cluster& cluster);

}  // namespace accordion
