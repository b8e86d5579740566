// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/fsdp_unit.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include "accordion/fsdp/scalar_type.h"

namespace accordion {

namespace {

UnitLayout make_layout(const UnitMembers& members, const CommGroups& groups,
                       const MixedPrecision& precision) {
  std::vector<ParameterSpec> specs;
  for (const MemberParameter& member : members.parameters) {
    const DType stored = to_dtype(member.tensor.scalar_type());
    specs.push_back({
        .name = member.name,
        .shape = member.tensor.sizes().vec(),
        .stored_dtype = stored,
        .gathered_dtype =
            precision.param_dtype ? to_dtype(*precision.param_dtype) : stored,
        .requires_grad = member.tensor.requires_grad(),
    });
  }
  return UnitLayout::make(std::move(specs), groups.gather->world_size());
}

/// A tensor of its own on a part of `flat`, no view of it to autograd:
/// optimizers detach gradients in place, which views refuse.
at::Tensor piece_of(const at::Tensor& flat, const Piece& piece) {
  return tensor_on(flat.storage(), piece.shard_offset, piece.local_shape,
                   flat.scalar_type());
}

using Face = void (ShardedParameter::*)(
    int index, const std::weak_ptr<GradientReceiver>& receiver);

void show(std::vector<ShardedParameter>& parameters, Face face,
          const std::weak_ptr<GradientReceiver>& unit) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    (parameters[i].*face)(static_cast<int>(i), unit);
  }
}

}  // namespace

FsdpUnit::FsdpUnit(UnitMembers members, CommGroups groups,
                   const MixedPrecision& precision, Listener& listener)
    : name_(std::move(members.name)),
      groups_(std::move(groups)),
      reduce_dtype_(precision.reduce_dtype),
      listener_(listener),
      layout_(make_layout(members, groups_, precision)) {
  const at::NoGradGuard no_grad;
  make_sections();
  make_parameters(members.parameters);
  arrived_.assign(parameters_.size(), false);
}

FsdpUnit::~FsdpUnit() = default;

UnshardedStorage FsdpUnit::make_unsharded(const Section& section,
                                          const at::Tensor& shard) const {
  if (unsharded_bytes() == 0) {
    return UnshardedStorage(shard.storage());
  }
  return {
      section.padded_numel * element_bytes(section.gathered_dtype),
      "[fully_shard] parameters of unit '" + name_ +
          "' were read while they were resharded. They exist only inside "
          "the unit's own forward and backward: do not keep views of them, "
          "and call the unit through its holder, not through a base class."};
}

void FsdpUnit::make_sections() {
  for (const Section& section : layout_.sections()) {
    const c10::ScalarType stored = to_scalar_type(section.stored_dtype);
    const at::Tensor shard = at::zeros({section.numel_per_rank}, stored);
    SectionState state{.shard = shard,
                       .gradient = {},
                       .unsharded = make_unsharded(section, shard)};
    if (section.requires_grad) {
      state.gradient = at::zeros({section.numel_per_rank}, stored);
      state.gradient_offset = gradient_bytes_;
      const std::int64_t bytes =
          section.padded_numel * element_bytes(section.gathered_dtype);
      gradient_bytes_ += (bytes + 63) / 64 * 64;
    }
    sections_.push_back(std::move(state));
  }
}

void FsdpUnit::make_parameters(const std::vector<MemberParameter>& members) {
  const int rank = groups_.gather->rank();
  for (std::size_t i = 0; i < members.size(); ++i) {
    const int index = static_cast<int>(i);
    const SectionState& section =
        sections_[static_cast<std::size_t>(layout_.section_of(index))];
    const Section& described =
        layout_.sections()[static_cast<std::size_t>(layout_.section_of(index))];
    const Piece piece = layout_.piece(index, rank);
    const at::Tensor& whole = members[i].tensor;
    const ShardedParameter::Faces faces{
        .piece_data = piece_of(section.shard, piece),
        .piece_gradient = described.requires_grad
                              ? piece_of(section.gradient, piece)
                              : at::Tensor(),
        .unsharded =
            section.unsharded.view(layout_.offset_of(index), whole.sizes(),
                                   to_scalar_type(described.gathered_dtype)),
    };
    faces.piece_data.view({-1}).copy_(
        whole.detach().reshape({-1}).slice(0, piece.begin, piece.end));
    num_trainable_ += described.requires_grad ? 1 : 0;
    parameters_.emplace_back(members[i].name, whole, piece, faces);
  }
}

void FsdpUnit::attach() {
  const bool whole = unsharded_bytes() == 0;
  show(parameters_,
       whole ? &ShardedParameter::show_unsharded
             : &ShardedParameter::show_sharded,
       weak_from_this());
  parameter_state_ =
      whole ? ParameterState::Unsharded : ParameterState::Sharded;
}

std::int64_t FsdpUnit::unsharded_bytes() const {
  if (!groups_.sharded()) {
    const auto& sections = layout_.sections();
    const bool cast = std::any_of(
        sections.begin(), sections.end(), [](const Section& section) {
          return section.stored_dtype != section.gathered_dtype;
        });
    if (!cast) {
      return 0;
    }
  }
  return layout_.unsharded_bytes();
}

bool FsdpUnit::owns_memory_of(const at::Tensor& tensor) const {
  return std::any_of(sections_.begin(), sections_.end(),
                     [&tensor](const SectionState& section) {
                       return section.unsharded.holds(tensor);
                     });
}

const at::Tensor& FsdpUnit::shard(int section) const {
  return sections_[static_cast<std::size_t>(section)].shard;
}

const at::Tensor& FsdpUnit::shard_gradient(int section) const {
  return sections_[static_cast<std::size_t>(section)].gradient;
}

void FsdpUnit::start_unshard(CommBuffer& slot) {
  TORCH_INTERNAL_ASSERT(parameter_state_ == ParameterState::Sharded, name_);
  for (ShardedParameter& parameter : parameters_) {
    parameter.adopt_assignment();
  }
  std::vector<GatherPart> parts;
  for (std::size_t i = 0; i < sections_.size(); ++i) {
    const Section& section = layout_.sections()[i];
    parts.push_back({
        .local = sections_[i].shard.const_data_ptr(),
        .local_dtype = section.stored_dtype,
        .full = slot.data() + layout_.unsharded_offset(static_cast<int>(i)),
        .full_dtype = section.gathered_dtype,
        .numel = section.numel_per_rank,
    });
  }
  gather_ = groups_.gather->all_gather_into(parts, &slot, name_);
  parameter_slot_ = &slot;
  parameter_state_ = ParameterState::Unsharding;
}

void FsdpUnit::finish_unshard() {
  TORCH_INTERNAL_ASSERT(parameter_state_ == ParameterState::Unsharding, name_);
  gather_.wait();
  for (std::size_t i = 0; i < sections_.size(); ++i) {
    sections_[i].unsharded.bind(parameter_slot_->data() +
                                layout_.unsharded_offset(static_cast<int>(i)));
  }
  show(parameters_, &ShardedParameter::show_unsharded, weak_from_this());
  parameter_state_ = ParameterState::Unsharded;
}

CommBuffer& FsdpUnit::reshard() {
  TORCH_INTERNAL_ASSERT(parameter_slot_ != nullptr, name_);
  if (parameter_state_ == ParameterState::Unsharding) {
    gather_.wait();  // peers may still be writing to the slot
  } else {
    show(parameters_, &ShardedParameter::show_sharded, weak_from_this());
    for (SectionState& section : sections_) {
      section.unsharded.release();
    }
  }
  groups_.gather->release(*parameter_slot_);
  parameter_state_ = ParameterState::Sharded;
  return *std::exchange(parameter_slot_, nullptr);
}

}  // namespace accordion
