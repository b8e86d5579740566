// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/hierarchical/scratch.h"

namespace accordion::detail {

std::byte* Scratch::take(std::int64_t numel, DType dtype) {
  const std::int64_t bytes = numel * element_bytes(dtype);
  const auto lines =
      (static_cast<std::size_t>(bytes) + sizeof(Line) - 1) / sizeof(Line);
  if (blocks_.empty() || blocks_.back().size - blocks_.back().taken < lines) {
    blocks_.push_back(
        {std::make_unique_for_overwrite<Line[]>(lines), lines, 0});
  }
  Block& block = blocks_.back();
  Line* first = block.lines.get() + block.taken;
  block.taken += lines;
  return reinterpret_cast<std::byte*>(first);
}

// What took several blocks fits into one the next time.
void Scratch::clear() {
  std::size_t lines = 0;
  for (const Block& block : blocks_) {
    lines += block.size;
  }
  if (blocks_.size() > 1) {
    blocks_.clear();
    blocks_.push_back(
        {std::make_unique_for_overwrite<Line[]>(lines), lines, 0});
  }
  if (!blocks_.empty()) {
    blocks_.back().taken = 0;
  }
}

}  // namespace accordion::detail
