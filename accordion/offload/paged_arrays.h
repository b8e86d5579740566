// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "accordion/offload/offload_target.h"
#include "accordion/offload/staged_blocks.h"

namespace accordion {

/// Flat arrays that live in a store, cut into blocks that pass through one set
/// of buffers: shards of parameters, their gradients, moments, activations.
///
/// // [Note: two ways to the bytes]
/// The buffers are the fast one. map() is the one for all others: it shows an
/// array where the store has it, takes no memory until it is touched, and knows
/// nothing of buffers. Whoever has mapped arrays uses buffers inside a
/// BufferedUse, of which the outermost brings both together: it begins by
/// forgetting what buffers have, as the arrays may have been written to, and
/// ends when the store has everything.
///
/// Memory   the buffers, of no more than OffloadTarget::buffer_bytes; and where
///          mappings are touched, until page_out()
/// Threads  one at a time
/// Throws   OffloadError as StagedBlocks does
class PagedArrays {
 public:
  /// Arrays of these bytes are there at once, and blocks and buffers fitted to
  /// them (OffloadTarget::fitted_to); more may be added. Buffers grow with what
  /// is added, to target.buffers at most.
  ///
  /// Throws  std::invalid_argument for sizes out of range, which begins with
  ///         `caller`
  PagedArrays(const OffloadTarget& target, std::string_view caller,
              const std::vector<std::int64_t>& array_bytes = {});

  /// Makes an array of zeros; returns its number, counted from 0.
  int add(std::int64_t bytes);

  /// Of all blocks of an array but the last.
  [[nodiscard]] std::int64_t block_bytes() const { return target_.block_bytes; }
  [[nodiscard]] int num_arrays() const {
    return static_cast<int>(arrays_.size());
  }
  [[nodiscard]] std::int64_t array_bytes(int array) const {
    return arrays_.at(static_cast<std::size_t>(array)).bytes;
  }
  /// Which blocks of blocks() an array has: [first, first + count).
  [[nodiscard]] int first_block(int array) const {
    return arrays_.at(static_cast<std::size_t>(array)).first;
  }
  [[nodiscard]] int num_blocks(int array) const {
    return arrays_.at(static_cast<std::size_t>(array)).count;
  }
  [[nodiscard]] StagedBlocks& blocks() { return *blocks_; }
  [[nodiscard]] const StagedBlocks& blocks() const { return *blocks_; }

  /// Begins to read blocks of the array as far as `most` promised buffers
  /// allow, in order; returns whether all of them are there or on their way.
  bool prefetch(int array, int most);

  /// Copies an array to memory, or memory to an array, through the buffers.
  void read(int array, std::span<std::byte> to);
  void write(int array, std::span<const std::byte> from);

  /// The whole array in the store's memory, as long as this lives. Null for an
  /// array of no bytes.
  std::byte* map(int array);
  /// The buffers have none of the array's bytes from now on: it was, or will
  /// be, written to where it is mapped.
  void forget(int array);
  void forget();  ///< the same for all arrays
  /// Frees what memory the mappings take.
  void page_out();
  void page_out(int array);

  /// See [Note: two ways to the bytes].
  class BufferedUse {
   public:
    explicit BufferedUse(PagedArrays& arrays);
    BufferedUse(const BufferedUse&) = delete;
    BufferedUse& operator=(const BufferedUse&) = delete;
    /// As close(), but an error is dropped: it comes again with the next
    /// transfer of the block.
    ~BufferedUse();
    /// Ends it. The outermost waits until the store has everything.
    void close();

   private:
    PagedArrays* arrays_;  // null once closed
  };
  [[nodiscard]] bool in_use() const { return uses_ > 0; }

 private:
  struct Array {
    std::int64_t bytes = 0;
    int first = 0;
    int count = 0;
    std::shared_ptr<std::byte> mapped = nullptr;
  };
  [[nodiscard]] std::vector<std::int64_t> cut(std::int64_t bytes) const;
  void note(std::int64_t bytes, int first);

  OffloadTarget target_;
  std::unique_ptr<StagedBlocks> blocks_;
  std::vector<Array> arrays_;  // their mappings end before the store
  int uses_ = 0;
};

/// Holds blocks that are visited in an order that is the same from one time to
/// the next, as that of optimizers' steps.
///
/// // [Note: order of blocks]
/// Each block remembers which one was visited after it. What follows the block
/// in use is read ahead as far as buffers allow, past the end of an array and
/// of a step.
class BlockOrder {
 public:
  /// The bytes of the block, as StagedBlocks::acquire, with what is to follow
  /// on its way.
  std::span<std::byte> acquire(StagedBlocks& blocks, int block);

 private:
  [[nodiscard]] int& after(int block);

  std::vector<int> next_;  // by block, what was visited after it; -1: unknown
  int last_ = -1;          // visited
};

/// A block in its buffer: written when that is asked for, or at the end of the
/// scope.
class HeldBlock {
 public:
  HeldBlock(StagedBlocks& blocks, int block, std::span<std::byte> memory)
      : blocks_(&blocks), block_(block), memory_(memory) {}
  HeldBlock(HeldBlock&& other) noexcept;
  HeldBlock& operator=(HeldBlock&&) = delete;
  HeldBlock(const HeldBlock&) = delete;
  HeldBlock& operator=(const HeldBlock&) = delete;
  ~HeldBlock();

  void release(Use use);
  [[nodiscard]] std::span<std::byte> memory() const { return memory_; }

 private:
  StagedBlocks* blocks_;  // null once released
  int block_;
  std::span<std::byte> memory_;
};

}  // namespace accordion
