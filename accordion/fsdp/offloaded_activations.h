// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "accordion/module/unit_hooks.h"
#include "accordion/offload/paged_arrays.h"

namespace accordion {

/// Keeps the arguments of checkpointed calls in a store from forward to
/// backward: each is written behind, and read ahead once backward has come to
/// the one kept after it.
///
/// The store grows with the largest pass; arrays are used again by tensors of
/// the same size.
///
/// Memory   the buffers of the target
/// Threads  one at a time
/// Throws   OffloadError
class OffloadedActivations
    : public std::enable_shared_from_this<OffloadedActivations> {
 public:
  explicit OffloadedActivations(const OffloadTarget& target);

  /// Keeps a copy of the tensor, which may be freed; null for one that is not
  /// worth it, or that a copy is no substitute for: small, no part of a
  /// gradient's way (tables and masks, which calls share), or not contiguous.
  std::unique_ptr<KeptTensor> keep(const at::Tensor& tensor);

  [[nodiscard]] PagedArrays& pages() { return pages_; }
  /// Arrays that hold something now.
  [[nodiscard]] int num_kept() const { return static_cast<int>(kept_.size()); }

 private:
  class Kept;

  [[nodiscard]] int take_array(std::int64_t bytes);
  void give_back(int array);
  void read_ahead_of(int array);

  PagedArrays pages_;
  std::map<std::int64_t, std::vector<int>> free_;  // arrays, by bytes
  std::vector<int> kept_;                          // arrays, the latest last
};

}  // namespace accordion
