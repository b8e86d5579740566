// SPDX-License-Identifier: BSD-3-Clause
// The part of FsdpUnit whose shards live in a store ([Note: offloaded shards]).
#include <algorithm>
#include <span>

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include "accordion/comm/elements.h"
#include "accordion/fsdp/fsdp_unit.h"
#include "accordion/fsdp/scalar_type.h"

namespace accordion {

namespace {

std::size_t bytes_of(const at::Tensor& tensor) {
  return static_cast<std::size_t>(tensor.nbytes());
}

}  // namespace

/// Zeros [numel_per_rank] in the stored dtype: in memory, or where they are
/// mapped. The tensor keeps the mapping, so it may be used after the unit.
at::Tensor FsdpUnit::make_shard(const Section& section,
                                std::optional<int>& array) const {
  if (host_pool_ != nullptr) {
    return make_host_shard(section);
  }
  const auto options = at::TensorOptions(to_scalar_type(section.stored_dtype));
  const std::int64_t bytes =
      section.numel_per_rank * element_bytes(section.stored_dtype);
  if (pages_ == nullptr || bytes == 0) {
    return at::zeros({section.numel_per_rank}, options);
  }
  array = pages_->add(bytes);
  return at::from_blob(
      pages_->map(*array), {section.numel_per_rank}, [pages = pages_](void*) {},
      options);
}

/// See [Note: shards on the host].
at::Tensor FsdpUnit::make_host_shard(const Section& section) const {
  const auto options = at::TensorOptions(to_scalar_type(section.stored_dtype));
  const auto share = std::make_shared<HostShare>(
      *host_pool_,
      section.numel_per_rank * element_bytes(section.stored_dtype));
  const at::Tensor memory =
      at::zeros({section.numel_per_rank},
                options.pinned_memory(groups_.device().is_cuda()));
  return at::from_blob(
      memory.mutable_data_ptr(), memory.sizes(), [share, memory](void*) {},
      options);
}

/// Puts this rank's part of a section's whole where the all-gather wants it,
/// block by block: no shard is in memory as a whole.
GatherPart FsdpUnit::stage_shard(const SectionState& section,
                                 CommBuffer& slot) const {
  const Section& layout = *section.layout;
  const std::int64_t numel = layout.numel_per_rank;
  std::byte* const full = slot.data() + section.slot_offset;
  std::byte* const place = detail::offset(full, layout.gathered_dtype,
                                          groups_.gather->rank() * numel);
  const std::int64_t block_numel =
      pages_->block_bytes() / element_bytes(layout.stored_dtype);
  const int array = *section.paged_shard;
  for (int i = 0; i < pages_->num_blocks(array); ++i) {
    const int block = pages_->first_block(array) + i;
    HeldBlock held(pages_->blocks(), block, pages_->blocks().acquire(block));
    detail::convert(
        detail::offset(place, layout.gathered_dtype, i * block_numel),
        layout.gathered_dtype, held.memory().data(), layout.stored_dtype,
        std::min(block_numel, numel - i * block_numel));
    held.release(Use::Unchanged);
  }
  return {.local = place,
          .local_dtype = layout.gathered_dtype,
          .full = full,
          .full_dtype = layout.gathered_dtype,
          .numel = numel};
}

bool FsdpUnit::read_ahead(int most_buffers) const {
  if (has_secondary_) {
    return true;
  }
  return std::all_of(
      sections_.begin(), sections_.end(), [&](const SectionState& section) {
        return !section.paged_shard ||
               pages_->prefetch(*section.paged_shard, most_buffers);
      });
}

void FsdpUnit::read_gradients_ahead(int most_buffers) const {
  for (const SectionState& section : sections_) {
    if (section.trainable && section.paged_gradient && adds_to(section)) {
      (void)pages_->prefetch(*section.paged_gradient, most_buffers);
    }
  }
}

bool FsdpUnit::adds_to(const SectionState& section) const {
  const auto& members = section.layout->parameters;
  return partial_ ||
         std::any_of(members.begin(), members.end(), [this](int index) {
           return parameters_[static_cast<std::size_t>(index)]
               .tensor()
               .grad()
               .defined();
         });
}

std::byte* FsdpUnit::gradient_target(const SectionState& section) const {
  const bool in_slot = gradient_shard_slot_ != nullptr &&
                       goes_to_slot(section) && !section.gradient.is_meta();
  return in_slot ? gradient_shard_slot_->data() + section.gradient_shard_offset
                 : static_cast<std::byte*>(section.gradient.mutable_data_ptr());
}

/// What the reduction is to add to.
void FsdpUnit::load_gradient(const SectionState& section) const {
  if (section.paged_gradient) {
    pages_->read(
        *section.paged_gradient,
        std::span(gradient_target(section), bytes_of(section.gradient)));
  }
}

CommBuffer& FsdpUnit::offload_gradients() {
  TORCH_INTERNAL_ASSERT(holds_gradient_shards(), name_);
  for (const SectionState& section : sections_) {
    if (section.trainable && section.paged_gradient) {
      pages_->write(*section.paged_gradient,
                    std::span<const std::byte>(gradient_target(section),
                                               bytes_of(section.gradient)));
    }
  }
  CommBuffer& slot = *gradient_shard_slot_;
  bind_gradient_shards(nullptr);
  gradient_state_ = GradientState::None;
  return slot;
}

/// The mapping of a section was, or is to be, written to.
void FsdpUnit::forget_shard(const SectionState& section) const {
  if (section.paged_shard) {
    pages_->forget(*section.paged_shard);
  }
}

void FsdpUnit::forget_gradient(const SectionState& section) const {
  if (section.paged_gradient) {
    pages_->forget(*section.paged_gradient);
  }
}

/// What touching a section's mappings brought to memory.
void FsdpUnit::page_out(const SectionState& section) const {
  for (const auto& array : {section.paged_shard, section.paged_gradient}) {
    if (array) {
      pages_->page_out(*array);
    }
  }
}

}  // namespace accordion
