// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

namespace accordion {

/// The memory of a section's unsharded parameters, as LibTorch sees it: one
/// storage object for the life of the unit, bound to a slot while the unit is
/// unsharded.
///
/// // [Note: saved for backward]
/// Autograd saves parameters by reference and their views by storage. The
/// object stays the same through reshard and unshard and only its address
/// changes, below what autograd's version counters see, so saved tensors are
/// right again once the unit is unsharded. While it is released, an access is
/// an error with the message given here, not a crash or a wrong number.
class UnshardedStorage {
 public:
  UnshardedStorage() = default;
  /// Storage that is always bound: parameters that are never gathered.
  explicit UnshardedStorage(c10::Storage resident);
  /// Released storage of `bytes` bytes.
  UnshardedStorage(std::int64_t bytes, const std::string& message);

  void bind(void* memory);
  void release();

  /// A tensor on it, contiguous, `offset` in elements. Requires: released, or
  /// always bound.
  [[nodiscard]] at::Tensor view(std::int64_t offset, at::IntArrayRef shape,
                                c10::ScalarType dtype) const;
  [[nodiscard]] bool holds(const at::Tensor& tensor) const;

 private:
  c10::Storage storage_;
  std::string message_;  // empty: always bound
};

/// A contiguous tensor of `shape` on `storage`, no view of another to autograd.
at::Tensor tensor_on(const c10::Storage& storage, std::int64_t offset,
                     at::IntArrayRef shape, c10::ScalarType dtype);

}  // namespace accordion
