// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "accordion/comm/mesh_grid.h"
#include "accordion/models/llama_config.h"
#include "accordion/schedule/memory_by_kind.h"
#include "accordion/train/train_config.h"

namespace accordion {

/// A change of a configuration that makes a rank hold less.
struct MemorySaving {
  std::string setting;     ///< "memory.chunked_loss_tokens = 1024"
  std::int64_t bytes = 0;  ///< that a rank would hold less at most, about
};

/// The changes that this run has not made yet and that save at least a
/// hundredth of what is held, the largest first; each alone, not added up.
///
/// `axes` are those of the run's mesh; `shares_memory`: its ranks have one copy
/// of gathered parameters in common.
[[nodiscard]] std::vector<MemorySaving> memory_savings(
    const TrainConfig& config, const LlamaConfig& model,
    std::span<const MeshAxis> axes, bool shares_memory,
    const MemoryByKind& held);

/// Sentences that say so, for an error.
[[nodiscard]] std::string describe(std::span<const MemorySaving> savings);

}  // namespace accordion
