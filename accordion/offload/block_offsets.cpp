// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/offload/block_offsets.h"

#include <fmt/format.h>

#include <stdexcept>

#include "accordion/offload/offload_store.h"

namespace accordion::detail {

BlockOffsets::BlockOffsets(const std::vector<std::int64_t>& block_bytes,
                           std::string_view caller)
    : offsets_{0} {
  add(block_bytes, caller);
}

void BlockOffsets::add(const std::vector<std::int64_t>& block_bytes,
                       std::string_view caller) {
  for (const std::int64_t bytes : block_bytes) {
    if (bytes < 0) {
      throw OffloadError(fmt::format(
          "[{}] block {} is of {} bytes: zero or more are possible.", caller,
          num_blocks(), bytes));
    }
    offsets_.push_back(offsets_.back() + offload_aligned(bytes));
  }
}

std::int64_t BlockOffsets::begin(int block) const {
  if (block < 0 || block >= num_blocks()) {
    throw std::logic_error(fmt::format(
        "[offload] there is no block {}: the store has {}, counted from 0.",
        block, num_blocks()));
  }
  return offsets_[static_cast<std::size_t>(block)];
}

std::int64_t BlockOffsets::bytes(int block) const {
  const std::int64_t from = begin(block);
  return offsets_[static_cast<std::size_t>(block) + 1] - from;
}

std::int64_t BlockOffsets::bytes(int first, int last) const {
  return begin(last - 1) + bytes(last - 1) - begin(first);
}

void BlockOffsets::check_memory(int block,
                                std::span<const std::byte> memory) const {
  const auto size = static_cast<std::int64_t>(memory.size());
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  if (size != bytes(block) || address % kOffloadAlignment != 0) {
    throw std::logic_error(fmt::format(
        "[offload] block {} is copied to or from {} bytes, aligned to a "
        "multiple of {}; not {} bytes at {}.",
        block, bytes(block), kOffloadAlignment, size, fmt::ptr(memory.data())));
  }
}

}  // namespace accordion::detail
