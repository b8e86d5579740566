// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/fsdp_unit.h"

#include <cstring>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
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

/// Storage whose address is given later; until then an access is an error.
c10::Storage make_unbound_storage(std::int64_t bytes) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes,
      c10::DataPtr(nullptr, c10::Device(c10::kCPU)), /*allocator=*/nullptr,
      /*resizable=*/false));
}

at::Tensor view_of(const c10::Storage& storage, std::int64_t offset,
                   at::IntArrayRef shape, c10::ScalarType dtype) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t dim = shape.size(); dim-- > 0;) {
    strides[dim] = stride;
    stride *= std::max<std::int64_t>(shape[dim], 1);
  }
  return at::empty({0}, at::TensorOptions(dtype))
      .set_(storage, offset, shape, strides);
}

/// A tensor of its own on a part of `flat`, no view of it to autograd:
/// optimizers detach gradients in place, which views refuse.
at::Tensor piece_of(const at::Tensor& flat, const Piece& piece) {
  return view_of(flat.storage(), piece.shard_offset, piece.local_shape,
                 flat.scalar_type());
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
  release_storages();
  arrived_.assign(parameters_.size(), false);
}

FsdpUnit::~FsdpUnit() = default;

void FsdpUnit::make_sections() {
  for (const Section& section : layout_.sections()) {
    SectionState state;
    const c10::ScalarType stored = to_scalar_type(section.stored_dtype);
    state.shard = at::zeros({section.numel_per_rank}, stored);
    if (section.requires_grad) {
      state.gradient = at::zeros({section.numel_per_rank}, stored);
      state.gradient_offset = gradient_bytes_;
      const std::int64_t bytes =
          section.padded_numel * element_bytes(section.gathered_dtype);
      gradient_bytes_ += (bytes + 63) / 64 * 64;
    }
    state.unsharded =
        unsharded_bytes() == 0
            ? state.shard.storage()
            : make_unbound_storage(section.padded_numel *
                                   element_bytes(section.gathered_dtype));
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
            view_of(section.unsharded, layout_.offset_of(index), whole.sizes(),
                    to_scalar_type(described.gathered_dtype)),
    };
    faces.piece_data.view({-1}).copy_(
        whole.detach().reshape({-1}).slice(0, piece.begin, piece.end));
    num_trainable_ += described.requires_grad ? 1 : 0;
    parameters_.emplace_back(members[i].name, whole, piece, faces);
  }
}

void FsdpUnit::attach() {
  const std::weak_ptr<GradientReceiver> self = weak_from_this();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (unsharded_bytes() == 0) {
      parameters_[i].show_unsharded(static_cast<int>(i), self);
    } else {
      parameters_[i].show_sharded(static_cast<int>(i), self);
    }
  }
  parameter_state_ = unsharded_bytes() == 0 ? ParameterState::Unsharded
                                            : ParameterState::Sharded;
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
  if (!tensor.has_storage()) {
    return false;
  }
  const auto* storage = tensor.storage().unsafeGetStorageImpl();
  return std::any_of(sections_.begin(), sections_.end(),
                     [storage](const SectionState& section) {
                       return section.unsharded.unsafeGetStorageImpl() ==
                              storage;
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
  point_storages_at_slot();
  const std::weak_ptr<GradientReceiver> self = weak_from_this();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].show_unsharded(static_cast<int>(i), self);
  }
  parameter_state_ = ParameterState::Unsharded;
}

CommBuffer& FsdpUnit::reshard() {
  TORCH_INTERNAL_ASSERT(parameter_slot_ != nullptr, name_);
  if (parameter_state_ == ParameterState::Unsharding) {
    gather_.wait();  // peers may still be writing to the slot
  } else {
    const std::weak_ptr<GradientReceiver> self = weak_from_this();
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      parameters_[i].show_sharded(static_cast<int>(i), self);
    }
    release_storages();
  }
  groups_.gather->release(*parameter_slot_);
  parameter_state_ = ParameterState::Sharded;
  return *std::exchange(parameter_slot_, nullptr);
}

void FsdpUnit::point_storages_at_slot() {
  for (std::size_t i = 0; i < sections_.size(); ++i) {
    c10::StorageImpl* storage = sections_[i].unsharded.unsafeGetStorageImpl();
    storage->clear_data_ptr_access_error_msg_();
    storage->set_data_ptr_noswap(c10::DataPtr(
        parameter_slot_->data() + layout_.unsharded_offset(static_cast<int>(i)),
        c10::Device(c10::kCPU)));
  }
}

// [Note: saved for backward]
// Autograd saves parameters by reference and their views by storage. The
// storage object stays the same through reshard and unshard and only its
// address changes, below what autograd's version counters see, so saved tensors
// are right again once the unit is unsharded. In between an access is an error
// that names the unit.
void FsdpUnit::release_storages() {
  if (unsharded_bytes() == 0) {
    return;
  }
  for (const SectionState& section : sections_) {
    c10::StorageImpl* storage = section.unsharded.unsafeGetStorageImpl();
    storage->set_data_ptr_noswap(c10::DataPtr(nullptr, c10::Device(c10::kCPU)));
    storage->release_data_and_set_meta_custom_data_ptr_error_msg_(
        "[fully_shard] parameters of unit '" + name_ +
        "' were read while they were resharded. They exist only inside the "
        "unit's own forward and backward: do not keep views of them, and call "
        "the unit through its holder, not through a base class.");
  }
}

}  // namespace accordion
