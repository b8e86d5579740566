// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "accordion/fsdp/copy_in_place.h"
#include "accordion/fsdp/slot_storage.h"
#include "accordion/shard/unit_layout.h"

namespace accordion {

/// What becomes of the gradients of a pass, and so the dtype in which they wait
/// in their slot.
enum class GradientUse {
  Reduced,    ///< at the end of the unit's backward: the dtype of computation
  KeptWhole,  ///< added up over passes first: the reduction's dtype
};

/// Where the whole parameters of a section come from.
enum class WholeSource {
  Gathered,  ///< all-gathered into a slot
  Cast,      ///< whole on every rank; a copy in the dtype of computation
  Resident,  ///< the shard itself is whole, in that dtype
};

/// What a section of a unit's layout needs at run time.
struct SectionState {
  const Section* layout = nullptr;
  WholeSource source = WholeSource::Gathered;
  /// Cut over the ranks of the gather group, and so are its gradients.
  bool sharded = false;
  bool trainable = false;  // any of its parameters is
  at::Tensor shard = {};   // [numel_per_rank] stored dtype; in the
                           // unit's buffer, if gathered in place
                           // without a copy
  /// Shard and gradient lie in memory of the host, of a unit on a device.
  bool on_host = false;
  std::optional<CopyInPlace> copy = {};
  std::optional<int> paged_shard = {};  // of the unit's pages; unset: in memory
  at::Tensor gradient = {};  // [numel_per_rank] stored dtype, if trainable;
                             // on gradient_storage
  std::optional<int> paged_gradient = {};  // as paged_shard
  SlotStorage gradient_storage = {};
  at::Tensor gradient_squares = {};  // [1] fp64, as the last reduction left
                                     // them: beside the shard, or on the CPU
  at::Tensor cast = {};              // [numel_per_rank] gathered dtype, if Cast
  at::Tensor secondary = {};         // [padded_numel / k] gathered dtype
  SlotStorage unsharded = {};        // [padded_numel] gathered dtype
  std::int64_t slot_offset = 0;      // in the parameter slot, or the unit's
                                     // buffer, bytes
  std::int64_t gradient_offset[2] = {0, 0};  // in the gradient slot, by use
  std::int64_t gradient_shard_offset = 0;    // in the slot of the shards, bytes

  [[nodiscard]] std::int64_t unsharded_bytes() const {
    return layout->padded_numel * element_bytes(layout->gathered_dtype);
  }
};

}  // namespace accordion
