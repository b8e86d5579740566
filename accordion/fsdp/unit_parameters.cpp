// SPDX-License-Identifier: BSD-3-Clause
// The parameter half of FsdpUnit.
#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include "accordion/comm/elements.h"
#include "accordion/fsdp/fsdp_unit.h"
#include "accordion/fsdp/scalar_type.h"

namespace accordion {

namespace {

/// Copies `numel` elements at `from`, which lie where `to` does, to it.
void convert_to(const at::Tensor& to, const void* from, DType from_dtype) {
  if (to.is_cpu()) {
    detail::convert(to.mutable_data_ptr(), to_dtype(to.scalar_type()), from,
                    from_dtype, to.numel());
    return;
  }
  to.copy_(at::for_blob(const_cast<void*>(from), to.sizes())
               .options(to.options().dtype(to_scalar_type(from_dtype)))
               .target_device(to.device())
               .make_tensor());
}

/// What this rank contributes to a section's whole, and over how many ranks.
GatherPart part_of(const SectionState& section, std::byte* slot,
                   bool from_secondary) {
  const bool copied =
      section.copy && section.copy->state != CopyInPlace::State::Stale;
  const at::Tensor& local = from_secondary ? section.secondary
                            : copied       ? section.copy->values
                                           : section.shard;
  return {
      .local = local.const_data_ptr(),
      .local_dtype = to_dtype(local.scalar_type()),
      .full = slot + section.slot_offset,
      .full_dtype = section.layout->gathered_dtype,
      .numel = local.numel(),
  };
}

}  // namespace

Work FsdpUnit::gather(CommBuffer& slot) {
  std::vector<GatherPart> parts;
  bool acquired = false;
  for (SectionState& section : sections_) {
    if (section.source != WholeSource::Gathered) {
      continue;
    }
    if (has_secondary_ || !section.paged_shard) {
      parts.push_back(part_of(section, slot.data(), has_secondary_));
      if (section.copy && section.copy->state == CopyInPlace::State::Stale) {
        section.copy->state = CopyInPlace::State::Current;
      }
      continue;
    }
    // Written to before the all-gather that would wait for its last readers.
    if (CommBuffer* shared = groups_.slot_of(slot); shared && !acquired) {
      groups_.gather->acquire(*shared);
      acquired = true;
    }
    parts.push_back(stage_shard(section, slot));
  }
  if (parts.empty()) {
    return {};
  }
  Communicator& group = has_secondary_ ? *groups_.secondary : *groups_.gather;
  return group.all_gather_into(parts, groups_.slot_of(slot), label_);
}

void FsdpUnit::start_unshard(CommBuffer* slot) {
  TORCH_INTERNAL_ASSERT(parameter_state_ == ParameterState::Sharded, name_);
  TORCH_INTERNAL_ASSERT((slot == nullptr) == gathers_in_place(), name_);
  adopt_parameters();
  CommBuffer& target = gathers_in_place() ? *common_ : *slot;
  gather_ = gather(target);
  for (const SectionState& section : sections_) {
    if (section.source == WholeSource::Cast && !section.cast.is_meta()) {
      convert_to(section.cast, section.shard.const_data_ptr(),
                 section.layout->stored_dtype);
    }
  }
  parameter_slot_ = &target;
  parameter_state_ = ParameterState::Unsharding;
}

void FsdpUnit::adopt_parameters() {
  if (std::none_of(parameters_.begin(), parameters_.end(),
                   [](const ShardedParameter& parameter) {
                     return parameter.has_assignment();
                   })) {
    return;
  }
  if (parameter_state_ == ParameterState::Sharded) {
    await_readers();  // of the same pass: where it was assigned in the middle
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].adopt_assignment()) {
      forget_shard(section_of(static_cast<int>(i)));
    }
  }
  forget_copies();
  groups_.gather->follow_caller();
}

void FsdpUnit::bind_sections() {
  for (SectionState& section : sections_) {
    if (section.source == WholeSource::Gathered) {
      section.unsharded.bind(parameter_slot_->data() + section.slot_offset);
    } else if (section.source == WholeSource::Cast) {
      section.unsharded.bind(section.cast.mutable_data_ptr());
    }
  }
}

void FsdpUnit::finish_unshard() {
  TORCH_INTERNAL_ASSERT(parameter_state_ == ParameterState::Unsharding, name_);
  gather_.wait();
  bind_sections();
  for (ShardedParameter& parameter : parameters_) {
    parameter.show_unsharded(weak_from_this());
  }
  parameter_state_ = ParameterState::Unsharded;
}

CommBuffer* FsdpUnit::reshard() {
  TORCH_INTERNAL_ASSERT(parameter_slot_ != nullptr, name_);
  if (parameter_state_ == ParameterState::Unsharding) {
    gather_.wait();  // peers may still be writing to the slot
    return free_slot();
  }
  for (ShardedParameter& parameter : parameters_) {
    parameter.show_sharded(weak_from_this());
  }
  for (SectionState& section : sections_) {
    if (section.source != WholeSource::Resident) {
      section.unsharded.release();
    }
  }
  return free_slot();
}

CommBuffer* FsdpUnit::free_slot() {
  if (CommBuffer* shared = groups_.slot_of(*parameter_slot_);
      shared != nullptr && slot_is_gathered()) {
    groups_.gather->release(*shared);
  }
  parameter_state_ = ParameterState::Sharded;
  CommBuffer* const slot = std::exchange(parameter_slot_, nullptr);
  return slot == common_.get() ? nullptr : slot;
}

void FsdpUnit::age_copies() {
  using State = CopyInPlace::State;
  for (SectionState& section : sections_) {
    if (section.copy) {
      State& state = section.copy->state;
      state = state == State::Stepped ? State::Current : State::Stale;
    }
  }
}

void FsdpUnit::forget_copies() {
  for (SectionState& section : sections_) {
    if (section.copy) {
      section.copy->state = CopyInPlace::State::Stale;
    }
  }
}

void FsdpUnit::await_readers() {
  TORCH_INTERNAL_ASSERT(parameter_state_ == ParameterState::Sharded, name_);
  if (gathers_in_place()) {
    groups_.gather->acquire(*common_);
  }
}

bool FsdpUnit::slot_is_gathered() const {
  for (const SectionState& section : sections_) {
    if (section.source == WholeSource::Gathered) {
      return true;
    }
  }
  return false;
}

CommBuffer& FsdpUnit::reshard_to_secondary() {
  TORCH_INTERNAL_ASSERT(parameter_state_ == ParameterState::Unsharded, name_);
  const int rank = groups_.secondary->rank();
  for (const SectionState& section : sections_) {
    if (!section.secondary.defined() || section.secondary.is_meta()) {
      continue;
    }
    const DType dtype = section.layout->gathered_dtype;
    convert_to(section.secondary,
               detail::offset(parameter_slot_->data() + section.slot_offset,
                              dtype, rank * section.secondary.numel()),
               dtype);
  }
  CommBuffer& slot = *reshard();
  has_secondary_ = true;
  return slot;
}

}  // namespace accordion
