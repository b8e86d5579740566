// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Storage.h>

namespace accordion {

/// Memory of a section that comes and goes, as LibTorch sees it: its unsharded
/// parameters, or a sharded gradient that does not stay. One storage object for
/// the life of the unit, bound to a slot in the meantime.
///
/// // [Note: saved for backward]
/// Autograd saves parameters by reference and their views by storage. The
/// object stays the same through reshard and unshard and only its address
/// changes, below what autograd's version counters see, so saved tensors are
/// right again once the unit is unsharded. While it is released, an access is
/// an error with the message given here, not a crash or a wrong number.
class SlotStorage {
 public:
  SlotStorage() = default;
  /// Storage that is always bound: memory that stays.
  explicit SlotStorage(c10::Storage resident);
  /// Released storage of `bytes` bytes. On meta no address is ever bound.
  SlotStorage(std::int64_t bytes, c10::Device device,
              const std::string& message);

  /// Whether there is storage, and it is always bound.
  [[nodiscard]] bool is_resident() const {
    return storage_ && message_.empty();
  }

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
