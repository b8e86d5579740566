// SPDX-License-Identifier: BSD-3-Clause
// The part of FsdpUnit that holds sharded gradients: for good, or in a slot
// from their reduction to the unit's step or to where they are offloaded; and
// what reductions add to.
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include "accordion/fsdp/fsdp_unit.h"

namespace accordion {

/// A gradient that does not stay has no memory yet.
void FsdpUnit::make_gradient(SectionState& section) const {
  const at::Tensor& shard = section.shard;
  if (offloads_gradients_ && (section.sharded || !groups_.sharded())) {
    section.gradient = make_shard(*section.layout, section.paged_gradient);
    section.gradient_storage = SlotStorage(section.gradient.storage());
    return;
  }
  section.gradient_storage =
      frees_gradients_
          ? SlotStorage(static_cast<std::int64_t>(shard.nbytes()),
                        shard.device(),
                        "[fully_shard] gradients of unit '" + name_ +
                            "' were read outside of its step. With "
                            "FsdpOptions::step_in_backward they exist only in "
                            "backward, until the optimizer has stepped the "
                            "unit.")
          : SlotStorage(at::zeros(shard.sizes(), shard.options()).storage());
  section.gradient =
      section.gradient_storage.view(0, shard.sizes(), shard.scalar_type());
}

/// Gives the sharded gradients memory in `slot`, or takes it away for null.
void FsdpUnit::bind_gradient_shards(CommBuffer* slot) {
  for (SectionState& section : sections_) {
    if (!section.trainable || !frees_gradients_) {
      continue;  // reductions know the slot
    }
    if (slot != nullptr) {
      section.gradient_storage.bind(slot->data() +
                                    section.gradient_shard_offset);
    } else {
      section.gradient_storage.release();
    }
  }
  gradient_shard_slot_ = slot;
}

/// Whether the reduction adds to the section's gradient, which is then loaded.
/// Where zero_grad left some parameters without a gradient, their part of it is
/// zeroed.
bool FsdpUnit::prepare_accumulation(const SectionState& section) {
  if (partial_) {
    return true;  // shown to nobody yet, so zero_grad did not mean it
  }
  bool any = false;
  bool written = false;
  std::vector<ShardedParameter*> without;
  for (const int i : section.layout->parameters) {
    ShardedParameter& parameter = parameters_[static_cast<std::size_t>(i)];
    if (!parameter.requires_grad()) {
      continue;
    }
    const at::Tensor& gradient = parameter.tensor().grad();
    written |= gradient.defined() &&
               !gradient.is_same(parameter.faces().piece_gradient);
    if (parameter.adopt_gradient()) {
      any = true;
    } else {
      without.push_back(&parameter);
    }
  }
  if (any) {
    for (const ShardedParameter* parameter : without) {
      parameter->faces().piece_gradient.zero_();
      written = true;
    }
  }
  if (written) {
    forget_gradient(section);
  }
  return any;
}

CommBuffer& FsdpUnit::free_gradient_shards() {
  TORCH_INTERNAL_ASSERT(gradient_state_ == GradientState::Sharded, name_);
  for (ShardedParameter& parameter : parameters_) {
    if (parameter.requires_grad()) {
      parameter.withdraw_gradient();
    }
  }
  CommBuffer& slot = *gradient_shard_slot_;
  bind_gradient_shards(nullptr);
  gradient_state_ = GradientState::None;
  return slot;
}

double FsdpUnit::gradient_squares() const {
  double sum = 0;
  for (const SectionState& section : sections_) {
    const bool counts = section.sharded || groups_.gather->rank() == 0;
    if (section.trainable && counts) {
      sum += section.gradient_squares.item<double>();
    }
  }
  return sum;
}

}  // namespace accordion
