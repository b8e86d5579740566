// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/fsdp_unit.h"

#include <algorithm>
#include <exception>
#include <numeric>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include "accordion/comm/elements.h"
#include "accordion/fsdp/scalar_type.h"

namespace accordion {

namespace {

constexpr std::int64_t kAlignmentBytes = 64;

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
}

WholeSource source_of(const Section& section, bool sharded, bool lone,
                      bool offloaded) {
  const bool same_dtype = section.stored_dtype == section.gathered_dtype;
  if (sharded || (lone && (!same_dtype || offloaded))) {
    return WholeSource::Gathered;
  }
  return same_dtype ? WholeSource::Resident : WholeSource::Cast;
}

/// Zero [1], on a CUDA device or else on the CPU, where it is a number of ours
/// and no memory of tensors.
at::Tensor make_squares(c10::Device device) {
  if (device.is_cuda()) {
    return at::zeros({1}, at::device(device).dtype(at::kDouble));
  }
  const auto number = std::make_shared<double>(0.0);
  return at::from_blob(
      number.get(), {1}, [number](void*) {}, at::kDouble);
}

/// A tensor of its own on a part of `flat`, no view of it to autograd:
/// optimizers detach gradients in place, which views refuse.
at::Tensor piece_of(const at::Tensor& flat, const Piece& piece) {
  return tensor_on(flat.storage(), piece.shard_offset, piece.local_shape,
                   flat.scalar_type());
}

}  // namespace

FsdpUnit::FsdpUnit(UnitMembers members, CommGroups groups,
                   const FsdpOptions& options,
                   std::shared_ptr<PagedArrays> pages, Listener& listener,
                   int number)
    : name_(std::move(members.name)),
      groups_(std::move(groups)),
      label_(groups_.label(name_)),
      reduce_dtype_(options.precision.reduce_dtype),
      frees_gradients_(options.step_in_backward),
      offloads_parameters_(options.offload && options.offload->parameters),
      offloads_gradients_(options.offload && options.offload->gradients),
      pages_(std::move(pages)),
      host_pool_(options.offload && groups_.gather->runs_behind_host()
                     ? options.offload->to.host
                     : nullptr),
      listener_(listener),
      number_(number),
      layout_(
          layout_of(members, options.precision, groups_.gather->world_size())) {
  const at::NoGradGuard no_grad;
  plan_sections();
  if (accordion::gathers_in_place(layout_, options) &&
      groups_.gather->shares_common_memory()) {
    common_ = groups_.gather->allocate_common(slot_bytes_, label_);
  }
  make_sections();
  make_parameters(members.parameters);
  update_trainable();
  std::ranges::for_each(sections_, [this](const SectionState& section) {
    page_out(section);  // the first values are not needed yet
  });
  filled_.assign(parameters_.size(), false);
  offered_.assign(parameters_.size(), false);
  arrived_.assign(sources_.size(), false);
}

/// Peers that are about to write to their shards need not wait for a unit that
/// is gone.
FsdpUnit::~FsdpUnit() {
  if (!gathers_in_place() || parameter_state_ == ParameterState::Sharded) {
    return;
  }
  try {
    gather_.wait();
    groups_.gather->release(*common_);
  } catch (const std::exception& error) {
    TORCH_WARN("[fully_shard] while dropping unit '", name_,
               "': ", error.what());
  }
}

SlotStorage FsdpUnit::make_unsharded(const SectionState& section) const {
  if (section.source == WholeSource::Resident) {
    return SlotStorage(section.shard.storage());
  }
  return {
      section.unsharded_bytes(), groups_.device(),
      "[fully_shard] parameters of unit '" + name_ +
          "' were read while they were resharded. They exist only inside "
          "the unit's own forward and backward: do not keep views of them, "
          "and call the unit through its holder, not through a base class."};
}

at::TensorOptions FsdpUnit::on_device(DType dtype) const {
  return at::TensorOptions(to_scalar_type(dtype)).device(groups_.device());
}

/// Where each section comes from, and where it lies when it is whole.
void FsdpUnit::plan_sections() {
  for (const Section& section : layout_.sections()) {
    SectionState state{.layout = &section};
    state.sharded = groups_.sharded() && section.placement == Placement::Shard;
    const bool lone = !groups_.sharded();
    const bool offloaded = offloads_parameters_ && (state.sharded || lone);
    state.source = source_of(section, state.sharded, lone, offloaded);
    if (state.source == WholeSource::Gathered) {
      state.slot_offset = slot_bytes_;
      slot_bytes_ += aligned(state.unsharded_bytes());
    } else if (state.source == WholeSource::Cast) {
      // Nothing in the slot, but the unit has to be unsharded all the same.
      slot_bytes_ = std::max(slot_bytes_, kAlignmentBytes);
    }
    sections_.push_back(std::move(state));
  }
}

void FsdpUnit::make_sections() {
  for (SectionState& state : sections_) {
    const Section& section = *state.layout;
    const at::TensorOptions stored = on_device(section.stored_dtype);
    const at::TensorOptions gathered = on_device(section.gathered_dtype);
    const bool cut = state.sharded || !groups_.sharded();
    const bool in_place =
        gathers_in_place() && state.source == WholeSource::Gathered;
    const bool copied =
        in_place && section.stored_dtype != section.gathered_dtype;
    if (copied) {
      state.copy = CopyInPlace{.values = place_of(state)};
    }
    if (in_place && !copied) {
      state.shard = place_of(state);
    } else if (offloads_parameters_ && cut) {
      state.shard = make_shard(section, state.paged_shard);
      state.on_host = host_pool_ != nullptr;
    } else {
      state.shard = at::zeros({section.numel_per_rank}, stored);
    }
    state.gradient_squares = make_squares(groups_.device());
    if (state.source == WholeSource::Cast) {
      state.cast = at::zeros({section.padded_numel}, gathered);
    }
    if (groups_.secondary && state.sharded) {
      state.secondary = at::empty(
          {section.padded_numel / groups_.secondary->world_size()}, gathered);
    }
    state.unsharded = make_unsharded(state);
  }
}

/// This rank's range of a section, in the buffer that the ranks share. Zeroed,
/// as that is. The tensor keeps the memory, so it may be used after the unit.
at::Tensor FsdpUnit::place_of(const SectionState& section) const {
  const Section& layout = *section.layout;
  std::byte* const place = detail::offset(
      common_->data() + section.slot_offset, layout.gathered_dtype,
      groups_.gather->rank() * layout.numel_per_rank);
  return at::from_blob(
      place, {layout.numel_per_rank}, [common = common_](void*) {},
      on_device(layout.gathered_dtype));
}

void FsdpUnit::make_parameters(const std::vector<MemberParameter>& members) {
  const int rank = groups_.gather->rank();
  sources_.resize(members.size());
  std::iota(sources_.begin(), sources_.end(), 0);
  for (std::size_t i = 0; i < members.size(); ++i) {
    const int index = static_cast<int>(i);
    const SectionState& section = section_of(index);
    const Piece piece = layout_.piece(index, rank);
    const at::Tensor& whole = members[i].tensor;
    ShardedParameter::Faces faces{
        .piece_data = piece_of(section.shard, piece),
        .unsharded = section.unsharded.view(
            layout_.offset_of(index), whole.sizes(),
            to_scalar_type(section.layout->gathered_dtype)),
    };
    const at::Tensor values = faces.piece_data.view({-1});
    if (values.is_meta()) {
      // Has none.
    } else if (members[i].init) {
      // Drawn by the host, so that a seed means the same on every device.
      const at::Tensor drawn =
          values.is_cpu()
              ? values
              : at::empty(values.sizes(), values.options().device(at::kCPU));
      initialize_piece(*members[i].init, piece.begin, drawn);
      if (!values.is_cpu()) {
        values.copy_(drawn);
      }
    } else {
      values.copy_(
          whole.detach().reshape({-1}).slice(0, piece.begin, piece.end));
    }
    std::vector<ShardedParameter::Source> sources{{whole, index}};
    for (const at::Tensor& alias : members[i].aliases) {
      sources.push_back({alias, static_cast<int>(sources_.size())});
      sources_.push_back(index);
    }
    parameters_.emplace_back(members[i].name, std::move(sources), piece,
                             std::move(faces));
  }
}

bool FsdpUnit::update_trainable() {
  bool changed = false;
  for (ShardedParameter& parameter : parameters_) {
    changed |= parameter.requires_grad() != parameter.wants_gradient();
  }
  if (!changed) {
    return false;
  }
  TORCH_CHECK_VALUE(gradient_state_ == GradientState::None && !partial_,
                    "[fully_shard] requires_grad of parameters of unit '",
                    name_,
                    "' was changed while their gradients wait to be reduced. "
                    "Change it between steps.");
  const at::NoGradGuard no_grad;
  for (SectionState& section : sections_) {
    const auto& members = section.layout->parameters;
    section.trainable =
        std::any_of(members.begin(), members.end(), [this](int index) {
          return parameters_[static_cast<std::size_t>(index)].wants_gradient();
        });
    if (section.trainable && !section.gradient.defined()) {
      make_gradient(section);  // kept when frozen again: optimizers hold it
    }
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    ShardedParameter& parameter = parameters_[i];
    const bool trainable = parameter.wants_gradient();
    const SectionState& section = section_of(static_cast<int>(i));
    parameter.set_piece_gradient(trainable ? section.gradient_storage.view(
                                                 parameter.piece().shard_offset,
                                                 parameter.piece().local_shape,
                                                 section.gradient.scalar_type())
                                           : at::Tensor());
    if (parameter_state_ == ParameterState::Unsharded) {
      // Shown before it had a gradient to receive, and maybe never again.
      parameter.show_unsharded(weak_from_this());
    }
  }
  place_gradients();
  return true;
}

/// Where each section's gradients lie in the slots.
void FsdpUnit::place_gradients() {
  gradient_shard_bytes_ = 0;
  for (SectionState& section : sections_) {
    if (section.trainable && goes_to_slot(section)) {
      section.gradient_shard_offset = gradient_shard_bytes_;
      gradient_shard_bytes_ +=
          aligned(static_cast<std::int64_t>(section.shard.nbytes()));
    }
  }
  for (const GradientUse use : {GradientUse::Reduced, GradientUse::KeptWhole}) {
    const auto u = static_cast<std::size_t>(use);
    gradient_bytes_[u] = 0;
    for (SectionState& section : sections_) {
      if (section.trainable) {
        section.gradient_offset[u] = gradient_bytes_[u];
        gradient_bytes_[u] +=
            aligned(section.layout->padded_numel *
                    element_bytes(gradient_dtype(section, use)));
      }
    }
  }
}

void FsdpUnit::attach() {
  const bool whole = unsharded_bytes() == 0;
  for (ShardedParameter& parameter : parameters_) {
    if (whole) {
      parameter.show_unsharded(weak_from_this());
    } else {
      parameter.show_sharded(weak_from_this());
    }
  }
  parameter_state_ =
      whole ? ParameterState::Unsharded : ParameterState::Sharded;
}

std::int64_t FsdpUnit::gradient_bytes(GradientUse use) const {
  return gradient_bytes_[static_cast<std::size_t>(use)];
}

std::int64_t FsdpUnit::all_reduce_bytes() const {
  std::int64_t bytes = 0;
  for (const SectionState& section : sections_) {
    if (groups_.replicate && section.trainable) {
      bytes += static_cast<std::int64_t>(section.gradient.nbytes());
    }
  }
  return bytes;
}

std::int64_t FsdpUnit::secondary_bytes() const {
  std::int64_t bytes = 0;
  for (const SectionState& section : sections_) {
    if (section.secondary.defined()) {
      bytes += static_cast<std::int64_t>(section.secondary.nbytes());
    }
  }
  return bytes;
}

bool FsdpUnit::owns_memory_of(const at::Tensor& tensor) const {
  return std::any_of(sections_.begin(), sections_.end(),
                     [&tensor](const SectionState& section) {
                       return section.unsharded.holds(tensor);
                     });
}

}  // namespace accordion
