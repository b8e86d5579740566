// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/software_stack.h"

#include <vector>

#include "accordion/plan/fitted_constants.h"
#include "accordion/plan/nearest_name.h"

namespace accordion::plan {
namespace {

std::vector<SoftwareStack> make_stacks() {
  const FittedConstants& fitted = fitted_constants();
  const auto named = [&](std::string name) {
    SoftwareStack stack;
    stack.name = std::move(name);
    stack.launch_s = fitted.launch_s;
    stack.allocator_overhead = fitted.allocator_overhead;
    return stack;
  };
  SoftwareStack accordion = named("accordion");
  // Slots come from a pool of their size; only operators allocate.
  SoftwareStack fsdp2 = named("torchtitan");
  fsdp2.fused_elementwise = false;
  fsdp2.copies_around_collectives = true;
  SoftwareStack torchtune = fsdp2;
  torchtune.name = "torchtune";
  torchtune.loss_parts_are_kept = true;
  SoftwareStack fms = named("fms-fsdp");
  fms.fused_elementwise = false;
  SoftwareStack foundry = named("llm-foundry");
  foundry.fused_loss = true;
  foundry.attention_factor = fitted.attention_triton;
  SoftwareStack megatron = named("megatron");
  megatron.specialized_attention = true;
  megatron.fused_loss = true;
  megatron.recompute_stops_early = false;
  SoftwareStack deepspeed = named("deepspeed");
  deepspeed.recompute_stops_early = false;
  // A checkpointed call runs its function again to the end.
  accordion.recompute_stops_early = false;
  accordion.fused_loss = true;
  accordion.lone_ranks_use_slots = true;
  accordion.reads_offloaded_ahead = true;
  accordion.gathers_in_place = true;
  accordion.copies_in_place = true;
  return {accordion, fsdp2, torchtune, fms, foundry, megatron, deepspeed};
}

}  // namespace

std::span<const SoftwareStack> software_stacks() {
  static const std::vector<SoftwareStack> kStacks = make_stacks();
  return kStacks;
}

const SoftwareStack& find_stack(std::string_view name) {
  return find_named(software_stacks(), name, "[find_stack] Software");
}

}  // namespace accordion::plan
