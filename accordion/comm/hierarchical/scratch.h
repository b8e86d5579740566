// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "accordion/comm/dtype.h"

namespace accordion::detail {

/// Memory that one call after another uses and nobody gives back: in a steady
/// state nothing is allocated.
class Scratch {
 public:
  /// Uninitialised, aligned to 64 bytes, until clear().
  std::byte* take(std::int64_t numel, DType dtype);
  void clear();

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  struct Block {
    std::unique_ptr<Line[]> lines;
    std::size_t size;
    std::size_t taken;
  };
  std::vector<Block> blocks_;
};

}  // namespace accordion::detail
