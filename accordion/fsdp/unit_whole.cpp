// SPDX-License-Identifier: BSD-3-Clause
// The part of FsdpUnit that shows whole parameters outside of passes.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "accordion/fsdp/fsdp_unit.h"
#include "accordion/fsdp/scalar_type.h"

namespace accordion {

at::Tensor FsdpUnit::gather_flat(const SectionState& section,
                                 const at::Tensor& shard,
                                 const std::string& label) const {
  if (!section.sharded) {
    return shard.clone();
  }
  Communicator& group = *groups_.gather;
  at::Tensor full =
      at::empty({shard.numel() * group.world_size()}, shard.options());
  const DType dtype = to_dtype(shard.scalar_type());
  const GatherPart part{.local = shard.const_data_ptr(),
                        .local_dtype = dtype,
                        .full = full.mutable_data_ptr(),
                        .full_dtype = dtype,
                        .numel = shard.numel()};
  group.all_gather_into({&part, 1}, nullptr, label).wait();
  return full;
}

at::Tensor FsdpUnit::whole_of(int parameter, const at::Tensor& flat) const {
  return tensor_on(flat.storage(), layout_.offset_of(parameter),
                   parameters_[static_cast<std::size_t>(parameter)]
                       .faces()
                       .unsharded.sizes(),
                   flat.scalar_type());
}

void FsdpUnit::adopt_assignments() {
  const at::NoGradGuard no_grad;
  adopt_parameters();
  for (const SectionState& section : sections_) {
    if (section.trainable) {
      (void)prepare_accumulation(section);
    }
  }
}

WholeSection FsdpUnit::gather_whole(int section, bool gradients) const {
  const SectionState& state = sections_[static_cast<std::size_t>(section)];
  WholeSection whole{.parameters = gather_flat(state, state.shard, label_)};
  if (gradients && state.trainable) {
    whole.gradients = gather_flat(state, state.gradient, label_);
  }
  page_out(state);
  return whole;
}

WholeSection FsdpUnit::make_whole(int section, bool gradients) const {
  const SectionState& state = sections_[static_cast<std::size_t>(section)];
  const std::int64_t numel = state.layout->padded_numel;
  WholeSection whole{.parameters = at::empty({numel}, state.shard.options())};
  if (gradients && state.trainable) {
    whole.gradients = at::empty({numel}, state.shard.options());
  }
  return whole;
}

void FsdpUnit::assign_whole(int section, const WholeSection& whole) {
  forget_copies();
  const at::NoGradGuard no_grad;
  const SectionState& state = sections_[static_cast<std::size_t>(section)];
  const std::int64_t numel = state.layout->numel_per_rank;
  const std::int64_t begin = state.sharded ? groups_.gather->rank() * numel : 0;
  state.shard.copy_(whole.parameters.narrow(0, begin, numel));
  if (whole.gradients.defined()) {
    state.gradient.copy_(whole.gradients.narrow(0, begin, numel));
  }
}

void FsdpUnit::show_whole(const std::vector<WholeSection>& whole) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const int index = static_cast<int>(i);
    const WholeSection& section =
        whole[static_cast<std::size_t>(layout_.section_of(index))];
    parameters_[i].show_whole(
        {.data = whole_of(index, section.parameters),
         .gradient = section.gradients.defined()
                         ? whole_of(index, section.gradients)
                         : at::Tensor()},
        weak_from_this());
  }
}

void FsdpUnit::collect_whole() {
  const at::NoGradGuard no_grad;
  for (ShardedParameter& parameter : parameters_) {
    parameter.collect_whole();
  }
}

void FsdpUnit::end_summon() {
  summoned_ = false;
  attach();
  for (ShardedParameter& parameter : parameters_) {
    parameter.hide_whole();
  }
}

}  // namespace accordion
