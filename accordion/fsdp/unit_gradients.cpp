// SPDX-License-Identifier: BSD-3-Clause
// The gradient half of FsdpUnit.
#include <cstring>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include "accordion/fsdp/fsdp_unit.h"
#include "accordion/fsdp/scalar_type.h"

namespace accordion {

std::byte* FsdpUnit::gradient_data(int section) const {
  return gradient_slot_->data() +
         sections_[static_cast<std::size_t>(section)].gradient_offset;
}

at::Tensor FsdpUnit::gradient_in_slot(int parameter) const {
  const int section = layout_.section_of(parameter);
  const DType dtype =
      layout_.sections()[static_cast<std::size_t>(section)].gathered_dtype;
  std::byte* data = gradient_data(section) +
                    layout_.offset_of(parameter) * element_bytes(dtype);
  return at::from_blob(data,
                       parameters_[static_cast<std::size_t>(parameter)]
                           .faces()
                           .unsharded.sizes(),
                       at::TensorOptions(to_scalar_type(dtype)));
}

void FsdpUnit::begin_gradients(CommBuffer& slot) {
  TORCH_INTERNAL_ASSERT(gradient_state_ == GradientState::None, name_);
  groups_.reduce->acquire(slot);
  gradient_slot_ = &slot;
  gradient_state_ = GradientState::Collecting;
  arrived_.assign(parameters_.size(), false);
  num_arrived_ = 0;
}

bool FsdpUnit::gradients_complete() const {
  return num_arrived_ == num_trainable_;
}

void FsdpUnit::receive_gradient(int parameter, const at::Tensor& gradient) {
  const auto i = static_cast<std::size_t>(parameter);
  TORCH_CHECK(gradient_state_ == GradientState::Collecting,
              "[fully_shard] a gradient of '", parameters_[i].name(),
              "' arrived while its unit '", name_,
              "' was not in backward. Its backward had ended, or never began "
              "because none of the unit's outputs lead to the loss: use the "
              "parameter only inside the unit's forward.");
  if (gradient.defined()) {
    const at::Tensor target = gradient_in_slot(parameter);
    if (arrived_[i]) {
      target.add_(gradient);  // a second graph task of the same backward
    } else {
      target.copy_(gradient);
    }
  } else if (!arrived_[i]) {
    gradient_in_slot(parameter).zero_();
  }
  num_arrived_ += arrived_[i] ? 0 : 1;
  arrived_[i] = true;
  listener_.gradient_arrived(*this);
}

void FsdpUnit::reject_gradient(int parameter) {
  TORCH_CHECK(false, "[fully_shard] a gradient of '",
              parameters_[static_cast<std::size_t>(parameter)].name(),
              "' arrived for its piece on this rank: the parameter was used "
              "outside the forward of its unit '",
              name_,
              "'. Compute what needs it in that unit's forward, or make the "
              "module that uses it the unit.");
}

void FsdpUnit::zero_missing_gradients() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].requires_grad() && !arrived_[i]) {
      gradient_in_slot(static_cast<int>(i)).zero_();
    }
  }
  // Slots pass from unit to unit: what lies between parameters is stale.
  for (std::size_t s = 0; s < sections_.size(); ++s) {
    const Section& section = layout_.sections()[s];
    if (!section.requires_grad) {
      continue;
    }
    const std::int64_t element = element_bytes(section.gathered_dtype);
    for (const Range& gap : layout_.gaps(static_cast<int>(s))) {
      std::memset(gradient_data(static_cast<int>(s)) + gap.begin * element, 0,
                  static_cast<std::size_t>((gap.end - gap.begin) * element));
    }
  }
}

/// Whether the reduction adds to the section's gradient. Where zero_grad left
/// some parameters without a gradient, their part of it is zeroed.
bool FsdpUnit::prepare_accumulation(int section) {
  bool any = false;
  std::vector<ShardedParameter*> without;
  for (const int i :
       layout_.sections()[static_cast<std::size_t>(section)].parameters) {
    ShardedParameter& parameter = parameters_[static_cast<std::size_t>(i)];
    if (parameter.adopt_gradient()) {
      any = true;
    } else {
      without.push_back(&parameter);
    }
  }
  if (any) {
    for (const ShardedParameter* parameter : without) {
      parameter->faces().piece_gradient.zero_();
    }
  }
  return any;
}

void FsdpUnit::start_reduce() {
  TORCH_INTERNAL_ASSERT(gradient_state_ == GradientState::Collecting, name_);
  const at::NoGradGuard no_grad;
  zero_missing_gradients();
  std::vector<ReducePart> parts;
  for (std::size_t i = 0; i < sections_.size(); ++i) {
    const Section& section = layout_.sections()[i];
    if (!section.requires_grad) {
      continue;
    }
    const int index = static_cast<int>(i);
    parts.push_back({
        .full = gradient_data(index),
        .full_dtype = section.gathered_dtype,
        .local = sections_[i].gradient.mutable_data_ptr(),
        .local_dtype = section.stored_dtype,
        .reduce_dtype =
            reduce_dtype_ ? to_dtype(*reduce_dtype_) : section.stored_dtype,
        .numel = section.numel_per_rank,
        .scale = 1.0 / groups_.reduce->world_size(),
        .accumulate = prepare_accumulation(index),
    });
  }
  reduction_ =
      groups_.sharded()
          ? groups_.reduce->reduce_scatter_into(parts, gradient_slot_, name_)
          : groups_.reduce->all_reduce(parts, gradient_slot_, name_);
  gradient_state_ = GradientState::Reducing;
}

CommBuffer& FsdpUnit::finish_reduce() {
  TORCH_INTERNAL_ASSERT(gradient_state_ == GradientState::Reducing, name_);
  reduction_.wait();
  for (ShardedParameter& parameter : parameters_) {
    if (parameter.requires_grad()) {
      parameter.publish_gradient();
    }
  }
  gradient_state_ = GradientState::None;
  return *std::exchange(gradient_slot_, nullptr);
}

CommBuffer* FsdpUnit::drop_gradients() {
  if (gradient_state_ == GradientState::Reducing) {
    reduction_.wait();
  }
  gradient_state_ = GradientState::None;
  return std::exchange(gradient_slot_, nullptr);
}

}  // namespace accordion
