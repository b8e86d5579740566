// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace accordion::detail {

/// Where the blocks of a store lie, one after the other, each from a multiple
/// of kOffloadAlignment on.
///
/// Throws  std::logic_error for a block that there is not
class BlockOffsets {
 public:
  /// Throws OffloadError, which begins with `caller`, for a negative size.
  BlockOffsets(const std::vector<std::int64_t>& block_bytes,
               std::string_view caller);
  /// Puts more blocks behind them; the same errors.
  void add(const std::vector<std::int64_t>& block_bytes,
           std::string_view caller);

  [[nodiscard]] int num_blocks() const {
    return static_cast<int>(offsets_.size()) - 1;
  }
  [[nodiscard]] std::int64_t total_bytes() const { return offsets_.back(); }
  [[nodiscard]] std::int64_t begin(int block) const;
  /// Its size rounded up.
  [[nodiscard]] std::int64_t bytes(int block) const;
  /// Of blocks [first, last), of which there is one at least.
  [[nodiscard]] std::int64_t bytes(int first, int last) const;

  /// Throws std::logic_error unless memory is aligned and of the block's size.
  void check_memory(int block, std::span<const std::byte> memory) const;

 private:
  std::vector<std::int64_t> offsets_;  // of each block, and the end
};

}  // namespace accordion::detail
