// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/held_memory.h"

#include <algorithm>

#include "accordion/fsdp/executor.h"

namespace accordion {

ShardedBytes sharded_bytes(const Executor& executor) {
  ShardedBytes bytes;
  for (const auto& unit : executor.units()) {
    for (const SectionState& section : unit->sections()) {
      if (!section.paged_shard && !section.on_host) {
        bytes.parameters += static_cast<std::int64_t>(section.shard.nbytes());
      }
      if (section.gradient_storage.is_resident() && !section.paged_gradient &&
          !section.on_host) {
        bytes.gradients += static_cast<std::int64_t>(section.gradient.nbytes());
      }
      if (section.cast.defined()) {
        bytes.whole_copies += static_cast<std::int64_t>(section.cast.nbytes());
      }
      if (section.copy) {
        bytes.whole_copies +=
            static_cast<std::int64_t>(section.copy->values.nbytes());
      }
    }
    bytes.whole_copies += unit->secondary_bytes();
    if (unit->parameter_state() != ParameterState::Sharded &&
        !unit->gathers_in_place()) {
      bytes.unsharded_parameters += unit->unsharded_bytes();
    }
    bytes.whole_gradients += unit->whole_gradient_bytes();
  }
  bytes.gradients += executor.pools().gradient_shards.allocated_bytes();
  if (const auto& pages = executor.pages()) {
    bytes.offload_buffers = pages->blocks().buffer_bytes();
    (executor.offloads_parameters() ? bytes.parameters : bytes.gradients) +=
        bytes.offload_buffers;
  }
  if (const auto& activations = executor.activations()) {
    bytes.activation_buffers = activations->pages().blocks().buffer_bytes();
  }
  bytes.parameter_slots = executor.pools().parameters.allocated_bytes();
  bytes.gradient_slots = executor.pools().gradients.allocated_bytes();
  return bytes;
}

void for_each_held_tensor(const Executor& executor,
                          const std::function<void(const at::Tensor&)>& visit) {
  for (const auto& unit : executor.units()) {
    for (const SectionState& section : unit->sections()) {
      if (!section.paged_shard) {
        visit(section.shard);
      }
      for (const at::Tensor* tensor : {&section.cast, &section.secondary}) {
        if (tensor->defined()) {
          visit(*tensor);
        }
      }
      if (section.copy) {
        visit(section.copy->values);
      }
      if (section.gradient_storage.is_resident() && !section.paged_gradient) {
        visit(section.gradient);
      }
    }
  }
}

int ranks_sharing_slots(const Executor& executor, int local_ranks) {
  const CommGroups& groups = executor.units().front()->groups();
  if (groups.secondary) {
    return 1;
  }
  const int ranks = groups.gather->world_size();
  if (groups.gather->backend() == "shm") {
    return ranks;
  }
  return groups.gather->backend() == "hierarchical"
             ? std::clamp(local_ranks, 1, ranks)
             : 1;
}

}  // namespace accordion
