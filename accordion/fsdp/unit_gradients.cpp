// SPDX-License-Identifier: BSD-3-Clause
// The gradient half of FsdpUnit.
#include <algorithm>
#include <cstring>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include "accordion/comm/elements.h"
#include "accordion/fsdp/fsdp_unit.h"
#include "accordion/fsdp/running_graph.h"
#include "accordion/fsdp/scalar_type.h"

namespace accordion {

namespace {

/// Copies that LibTorch would not share out among threads either.
constexpr std::size_t kSmallBytes = 1 << 15;

void zero(std::byte* memory, std::int64_t bytes, c10::Device device) {
  if (device.is_cpu()) {
    std::memset(memory, 0, static_cast<std::size_t>(bytes));
  } else {
    at::for_blob(memory, {bytes})
        .options(at::device(device).dtype(at::kByte))
        .target_device(device)
        .make_tensor()
        .zero_();
  }
}

}  // namespace

DType FsdpUnit::gradient_dtype(const SectionState& section,
                               GradientUse use) const {
  // What a device's transport sums is rounded to the dtype that it lies in.
  if (use == GradientUse::Reduced && !groups_.reduce->sums_in_full_dtype()) {
    return section.layout->gathered_dtype;
  }
  return reduce_dtype_ ? to_dtype(*reduce_dtype_)
                       : section.layout->stored_dtype;
}

std::byte* FsdpUnit::gradient_data(const SectionState& section) const {
  return gradient_slot_->data() +
         section.gradient_offset[static_cast<std::size_t>(gradient_use_)];
}

std::byte* FsdpUnit::gradient_place(int parameter) {
  const SectionState& section = section_of(parameter);
  return detail::offset(gradient_data(section),
                        gradient_dtype(section, gradient_use_),
                        layout_.offset_of(parameter));
}

at::Tensor FsdpUnit::gradient_in_slot(int parameter) {
  const at::Tensor& unsharded =
      parameters_[static_cast<std::size_t>(parameter)].faces().unsharded;
  return at::for_blob(gradient_place(parameter), unsharded.sizes())
      .options(on_device(gradient_dtype(section_of(parameter), gradient_use_)))
      .target_device(groups_.device())
      .make_tensor();
}

void FsdpUnit::store_gradient(int parameter, const at::Tensor& gradient) {
  if (filled_[static_cast<std::size_t>(parameter)]) {
    // Of a pass before, another graph or tensor.
    gradient_in_slot(parameter).add_(gradient);
    return;
  }
  const bool fits =
      gradient.is_contiguous() &&
      gradient.scalar_type() ==
          to_scalar_type(gradient_dtype(section_of(parameter), gradient_use_));
  std::byte* place = gradient_place(parameter);
  if (fits && gradient.const_data_ptr() == place) {
    return;  // an operator computed it where it belongs
  }
  if (fits && gradient.is_cpu() && gradient.nbytes() <= kSmallBytes) {
    std::memcpy(place, gradient.const_data_ptr(), gradient.nbytes());
  } else {
    gradient_in_slot(parameter).copy_(gradient);
  }
}

void FsdpUnit::begin_gradients(CommBuffer& slot, GradientUse use) {
  TORCH_INTERNAL_ASSERT(gradient_state_ == GradientState::None, name_);
  groups_.reduce->acquire(slot);
  gradient_slot_ = &slot;
  gradient_use_ = use;
  filled_.assign(parameters_.size(), false);
  gradient_state_ = GradientState::Whole;
  resume_gradients();
}

void FsdpUnit::resume_gradients() {
  TORCH_INTERNAL_ASSERT(gradient_state_ == GradientState::Whole, name_);
  gradient_state_ = GradientState::Collecting;
  offered_.assign(parameters_.size(), false);
  expected_in_.assign(sources_.size(), kNoBackward);
  arrived_.assign(sources_.size(), false);
  num_missing_ = 0;
}

void FsdpUnit::expect_gradients() {
  if (gradient_state_ != GradientState::Collecting) {
    return;  // all are frozen
  }
  for (const ShardedParameter& parameter : parameters_) {
    if (!parameter.requires_grad()) {
      continue;
    }
    for (const auto& [source, node] : parameter.sinks()) {
      const auto i = static_cast<std::size_t>(source);
      const bool waits = expected_in_[i] != kNoBackward && !arrived_[i];
      if (!waits && expected_in_[i] != running_backward() &&
          backward_runs(*node)) {
        expected_in_[i] = running_backward();
        arrived_[i] = false;
        ++num_missing_;
      }
    }
  }
}

void FsdpUnit::keep_gradients() {
  TORCH_INTERNAL_ASSERT(gradient_state_ == GradientState::Collecting, name_);
  gradient_state_ = GradientState::Whole;
}

/// Not for a parameter with several tensors: what one of them delivers could
/// not be told from a sum of the memory offered and another use of the tensor.
at::Tensor FsdpUnit::offer_destination(int source) {
  const int parameter = sources_[static_cast<std::size_t>(source)];
  const auto i = static_cast<std::size_t>(parameter);
  const SectionState& section = section_of(parameter);
  const bool free = gradient_state_ == GradientState::Collecting &&
                    !filled_[i] && !offered_[i] && !parameters_[i].is_tied();
  if (!free || gradient_dtype(section, gradient_use_) !=
                   section.layout->gathered_dtype) {
    return {};
  }
  offered_[i] = true;
  return gradient_in_slot(parameter);
}

void FsdpUnit::receive_gradient(int source, const at::Tensor& gradient) {
  const auto from = static_cast<std::size_t>(source);
  const int parameter = sources_[from];
  const auto i = static_cast<std::size_t>(parameter);
  TORCH_CHECK(gradient_state_ == GradientState::Collecting,
              "[fully_shard] a gradient of '", parameters_[i].name(),
              "' arrived while its unit '", name_,
              "' was not in backward. Its backward had ended, or never began "
              "because none of the unit's outputs lead to the loss: use the "
              "parameter only inside the unit's forward.");
  if (gradient.defined()) {
    store_gradient(parameter, gradient);
  } else if (!filled_[i]) {
    gradient_in_slot(parameter).zero_();
  }
  if (expected_in_[from] == running_backward() && !arrived_[from]) {
    arrived_[from] = true;
    --num_missing_;
  }
  filled_[i] = true;
  listener_.gradient_arrived(number_);
}

void FsdpUnit::reject_gradient(int source) {
  const auto parameter =
      static_cast<std::size_t>(sources_[static_cast<std::size_t>(source)]);
  TORCH_CHECK_VALUE(
      !summoned_, "[SummonFullParameters] a gradient of '",
      parameters_[parameter].name(),
      "' arrived, while a guard shows it whole. End the guard, and compute in "
      "the forward of unit '",
      name_, "'.");
  TORCH_CHECK(false, "[fully_shard] a gradient of '",
              parameters_[parameter].name(),
              "' arrived for its piece on this rank: the parameter was used "
              "outside the forward of its unit '",
              name_,
              "'. Compute what needs it in that unit's forward, or make the "
              "module that uses it the unit.");
}

void FsdpUnit::zero_missing_gradients() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const int index = static_cast<int>(i);
    if (section_of(index).trainable && !filled_[i]) {
      gradient_in_slot(index).zero_();
    }
  }
  if (groups_.device().is_meta()) {
    return;
  }
  // Slots pass from unit to unit: what lies between parameters is stale.
  for (std::size_t s = 0; s < sections_.size(); ++s) {
    if (!sections_[s].trainable) {
      continue;
    }
    const DType dtype = gradient_dtype(sections_[s], gradient_use_);
    for (const Range& gap : layout_.gaps(static_cast<int>(s))) {
      zero(detail::offset(gradient_data(sections_[s]), dtype, gap.begin),
           (gap.end - gap.begin) * element_bytes(dtype), groups_.device());
    }
  }
}

void FsdpUnit::start_reduce(double scale, CommBuffer* shards) {
  TORCH_INTERNAL_ASSERT(gradient_state_ == GradientState::Collecting ||
                            gradient_state_ == GradientState::Whole,
                        name_);
  TORCH_INTERNAL_ASSERT((shards != nullptr) == (gradient_shard_bytes_ > 0),
                        name_);
  const at::NoGradGuard no_grad;
  if (shards != nullptr) {
    bind_gradient_shards(shards);
  }
  zero_missing_gradients();
  std::vector<ReducePart> scattered, whole;
  for (SectionState& section : sections_) {
    if (!section.trainable) {
      continue;
    }
    const bool accumulate = prepare_accumulation(section);
    if (accumulate) {
      load_gradient(section);
    }
    (section.sharded ? scattered : whole)
        .push_back({
            .full = gradient_data(section),
            .full_dtype = gradient_dtype(section, gradient_use_),
            .local = gradient_target(section),
            .local_dtype = section.layout->stored_dtype,
            .reduce_dtype = gradient_dtype(section, GradientUse::KeptWhole),
            .numel = section.layout->numel_per_rank,
            .scale = scale,
            .accumulate = accumulate,
            .sum_of_squares =
                section.gradient_squares.mutable_data_ptr<double>(),
        });
  }
  if (!scattered.empty()) {
    reduction_ =
        groups_.reduce->reduce_scatter_into(scattered, gradient_slot_, label_);
  }
  if (!whole.empty()) {
    whole_reduction_ =
        groups_.reduce->all_reduce(whole, gradient_slot_, label_);
  }
  gradient_state_ = GradientState::Reducing;
}

CommBuffer& FsdpUnit::finish_reduce() {
  TORCH_INTERNAL_ASSERT(gradient_state_ == GradientState::Reducing, name_);
  reduction_.wait();
  whole_reduction_.wait();
  if (groups_.replicate) {
    gradient_state_ = GradientState::None;
    partial_ = true;
  } else {
    complete_gradients();
  }
  return *std::exchange(gradient_slot_, nullptr);
}

void FsdpUnit::start_all_reduce(CommBuffer* shards) {
  TORCH_INTERNAL_ASSERT(gradient_state_ == GradientState::None && partial_,
                        name_);
  if (shards != nullptr) {
    bind_gradient_shards(shards);
  }
  std::vector<ReducePart> parts;
  for (SectionState& section : sections_) {
    if (!section.trainable) {
      continue;
    }
    if (shards != nullptr) {
      load_gradient(section);
    }
    std::byte* const gradient = gradient_target(section);
    parts.push_back({
        .full = gradient,
        .full_dtype = section.layout->stored_dtype,
        .local = gradient,
        .local_dtype = section.layout->stored_dtype,
        .reduce_dtype = section.layout->stored_dtype,
        .numel = section.gradient.numel(),
        .scale = 1.0 / groups_.num_replicas(),
        .sum_of_squares = section.gradient_squares.mutable_data_ptr<double>(),
    });
  }
  reduction_ = groups_.replicate->all_reduce(parts, nullptr, label_);
  gradient_state_ = GradientState::AllReducing;
}

void FsdpUnit::finish_all_reduce() {
  TORCH_INTERNAL_ASSERT(gradient_state_ == GradientState::AllReducing, name_);
  reduction_.wait();
  partial_ = false;
  complete_gradients();
}

void FsdpUnit::complete_gradients() {
  for (ShardedParameter& parameter : parameters_) {
    if (parameter.requires_grad()) {
      parameter.publish_gradient();
    }
  }
  gradient_state_ = gradient_shard_slot_ != nullptr ? GradientState::Sharded
                                                    : GradientState::None;
}

FsdpUnit::DroppedSlots FsdpUnit::drop_gradients() {
  reduction_.wait();
  whole_reduction_.wait();
  DroppedSlots slots;
  if (gradient_state_ == GradientState::Sharded) {
    slots.shards = &free_gradient_shards();
  } else if (gradient_shard_slot_ != nullptr) {
    slots.shards = gradient_shard_slot_;
    bind_gradient_shards(nullptr);
  }
  gradient_state_ = GradientState::None;
  num_missing_ = 0;
  partial_ = false;
  slots.gradients = std::exchange(gradient_slot_, nullptr);
  return slots;
}

}  // namespace accordion
