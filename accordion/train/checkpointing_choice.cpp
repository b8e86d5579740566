// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/checkpointing_choice.h"

#include <cstdint>
#include <stdexcept>

#include <fmt/format.h>

#include "accordion/train/config_options.h"
#include "accordion/train/memory_estimate.h"
#include "accordion/train/training_model.h"

namespace accordion {

TrainConfig with_checkpointing(const TrainConfig& config,
                               const LlamaConfig& model,
                               std::span<const MeshAxis> axes) {
  if (config.memory.activation_checkpointing != "auto") {
    return config;
  }
  const std::int64_t limit = bytes_of_limit(config.memory.limit).value();
  TrainConfig chosen = config;
  MemoryByKind expected;
  for (const char* const layers :
       {"none", "selective", "8", "4", "3", "2", "full"}) {
    chosen.memory.activation_checkpointing = layers;
    expected = estimated_memory(model, chosen, axes, shares_memory(chosen));
    if (expected.total() + expected.activations / 10 <= limit) {
      return chosen;
    }
  }
  throw std::invalid_argument(fmt::format(
      "[train] memory.limit is {}, and a rank would hold about {} with every "
      "layer checkpointed: {}. Use more ranks, or other keys of [memory].",
      describe_bytes(limit), describe_bytes(expected.total()),
      describe(expected)));
}

TrainConfig with_checkpointing(const TrainConfig& config,
                               const Rendezvous& rendezvous) {
  return config.memory.activation_checkpointing != "auto"
             ? config
             : with_checkpointing(config, open_model_config(config),
                                  mesh_axes(config, rendezvous));
}

}  // namespace accordion
