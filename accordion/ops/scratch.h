// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>

namespace accordion::ops::detail {

/// Memory of one thread, not initialised.
template <class T>
class Scratch {
 public:
  explicit Scratch(int64_t numel)
      : memory_(std::make_unique_for_overwrite<T[]>(numel + kAlign)) {}
  T* get() {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.get());
    return reinterpret_cast<T*>((address + 63) / 64 * 64);
  }

 private:
  static constexpr int64_t kAlign = 64 / static_cast<int64_t>(sizeof(T));
  std::unique_ptr<T[]> memory_;
};

}  // namespace accordion::ops::detail
