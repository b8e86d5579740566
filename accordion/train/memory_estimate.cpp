// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/memory_estimate.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "accordion/fsdp/scalar_type.h"
#include "accordion/fsdp/unit_discovery.h"
#include "accordion/models/llama.h"
#include "accordion/module/meta_init.h"
#include "accordion/offload/offload_target.h"
#include "accordion/train/activation_estimate.h"
#include "accordion/train/config_options.h"
#include "accordion/train/planned_schedule.h"

namespace accordion {
namespace {

/// Ranks that hold pieces of one copy.
int shard_ranks(const FsdpOptions& options, std::span<const MeshAxis> axes) {
  const auto shard = std::ranges::find(axes, "shard", &MeshAxis::name);
  const bool whole = options.strategy == Strategy::NoShard;
  return whole || shard == axes.end() ? 1 : shard->size;
}

/// Of either moment of a rank's piece.
std::int64_t moment_bytes(const TrainConfig& config, const Section& section) {
  const DType dtype = config.optimizer.moments_dtype == "bf16"
                          ? DType::Bfloat16
                          : section.stored_dtype;
  return section.requires_grad ? section.numel_per_rank * element_bytes(dtype)
                               : 0;
}

/// Bytes of arrays that are offloaded, by the buffers they share.
struct OffloadedArrays {
  std::vector<std::int64_t> shards;
  std::vector<std::int64_t> moments;
};

/// Adds what a rank keeps of a section from step to step.
void add_section_memory(MemoryByKind& memory, const Section& section,
                        const TrainConfig& config, const FsdpOptions& options,
                        int ranks, OffloadedArrays& offloaded) {
  const std::int64_t piece =
      section.numel_per_rank * element_bytes(section.stored_dtype);
  const bool cut = ranks == 1 || section.placement == Placement::Shard;
  const bool offloads = options.offload && cut;
  if (offloads && options.offload->parameters) {
    offloaded.shards.push_back(piece);
  } else {
    memory.sharded_parameters += piece;
  }
  if (section.requires_grad) {
    if (offloads && options.offload->gradients) {
      offloaded.shards.push_back(piece);
    } else if (!options.step_in_backward) {
      memory.gradients += piece;
    }
    // Of shards on a device's host, moments lie beside them.
    const bool on_host = offloads && options.offload->to.host != nullptr;
    memory.optimizer += on_host ? 0 : 2 * moment_bytes(config, section);
    offloaded.moments.insert(offloaded.moments.end(), 2,
                             moment_bytes(config, section));
  }
  const std::int64_t whole =
      section.padded_numel * element_bytes(section.gathered_dtype);
  const bool sharded = ranks > 1 && section.placement == Placement::Shard;
  const int neighbours = options.reshard_to_ranks;
  if (sharded && neighbours > 1 && neighbours < ranks) {
    memory.unsharded_parameters += whole / neighbours;
  } else if (ranks > 1 && !sharded &&
             section.stored_dtype != section.gathered_dtype) {
    memory.unsharded_parameters += whole;
  }
}

/// Buffers that serve the slots of several schedules in turn.
class Buffers {
 public:
  /// As SlotPool::fit: a buffer does not grow, what is too small stays, and
  /// those that units `held` when the pass began serve no other.
  void fit(std::vector<std::int64_t> slots, std::vector<std::int64_t> held) {
    std::multiset<std::int64_t> used;
    for (std::vector<std::int64_t>* sizes : {&held, &slots}) {
      std::ranges::sort(*sizes, std::ranges::greater{});
      for (const std::int64_t size : *sizes) {
        const auto found = free_.lower_bound(size);
        used.insert(found == free_.end() ? size : *found);
        if (found != free_.end()) {
          free_.erase(found);
        }
      }
    }
    free_.merge(used);
  }
  [[nodiscard]] std::int64_t bytes() const {
    return std::accumulate(free_.begin(), free_.end(), std::int64_t{0});
  }

 private:
  std::multiset<std::int64_t> free_;
};

std::vector<Microbatch> planned_passes_of(const TrainConfig& config) {
  if (config.train.grad_accumulation == 1) {
    return {Microbatch::Only};
  }
  return {Microbatch::Only, Microbatch::First, Microbatch::Middle,
          Microbatch::Last};
}

}  // namespace

MemoryByKind estimated_memory(const LlamaConfig& model,
                              const TrainConfig& config,
                              std::span<const MeshAxis> axes,
                              bool shares_memory) {
  const FsdpOptions options = fsdp_options(config);
  const int ranks = shard_ranks(options, axes);
  MemoryByKind memory;
  OffloadedArrays offloaded;
  {
    const MetaInit meta;  // only shapes are looked at
    Unit<Llama> module(model);
    for (const UnitMembers& unit :
         discover_units(*module, placement_rule(options))) {
      const UnitLayout layout = layout_of(unit, options.precision, ranks);
      const bool in_place = shares_memory && gathers_in_place(layout, options);
      for (const Section& section : layout.sections()) {
        add_section_memory(memory, section, config, options, ranks, offloaded);
        if (in_place && section.placement == Placement::Shard &&
            section.stored_dtype != section.gathered_dtype) {
          memory.unsharded_parameters +=
              section.numel_per_rank * element_bytes(section.gathered_dtype);
        }
      }
    }
  }
  const bool on_host = options.offload && options.offload->to.host != nullptr;
  if (config.memory.offload != "none" && !on_host) {
    memory.optimizer =
        OffloadTarget().fitted_to(offloaded.moments).buffer_bytes();
  }
  if (options.offload && !on_host) {
    (options.offload->parameters ? memory.sharded_parameters
                                 : memory.gradients) +=
        options.offload->to.fitted_to(offloaded.shards).buffer_bytes();
  }
  Buffers parameters;
  Buffers gradients;
  Buffers gradient_shards;
  for (const Microbatch microbatch : planned_passes_of(config)) {
    const StepSchedule schedule =
        planned_schedule(model, options, axes, shares_memory, microbatch);
    std::vector<std::int64_t> whole;
    std::vector<std::int64_t> whole_gradients;
    for (const ScheduledUnit& unit : schedule.units) {
      if (unit.begins_unsharded && !unit.in_place) {
        whole.push_back(unit.unsharded_bytes);
      }
      if (unit.begins_with_gradient) {
        whole_gradients.push_back(unit.gradient_bytes);
      }
    }
    parameters.fit(schedule.parameter_slots, std::move(whole));
    gradients.fit(schedule.gradient_slots, std::move(whole_gradients));
    gradient_shards.fit(schedule.gradient_shard_slots, {});
  }
  const bool common = shares_memory && options.reshard_to_ranks <= 1;
  memory.unsharded_parameters += parameters.bytes() / (common ? ranks : 1);
  memory.communication_buffers = gradients.bytes();
  memory.gradients += gradient_shards.bytes();
  memory.activations = estimated_activations(model, config);
  return memory;
}

bool shares_memory(const TrainConfig& config) {
  return config.train.device == "cpu" &&
         (config.fsdp.backend == "auto" || config.fsdp.backend == "shm");
}

}  // namespace accordion
