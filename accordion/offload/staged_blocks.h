// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "accordion/offload/aligned_memory.h"
#include "accordion/offload/offload_store.h"

namespace accordion {

/// What became of a block while it was held.
enum class Use { Unchanged, Changed };

/// What has happened since the buffers were made.
struct OffloadCounters : OffloadTraffic {
  /// Blocks acquired that had to come from the store,
  std::int64_t reads = 0;
  /// and those of them that were there when they were acquired.
  std::int64_t reads_in_time = 0;
  /// In acquire(), for a read or for a buffer.
  double seconds_waited = 0;

  OffloadCounters& operator+=(const OffloadCounters& other);
  OffloadCounters& operator-=(const OffloadCounters& other);
};

/// A bounded number of buffers through which the blocks of a store pass: read
/// ahead, written behind.
///
/// // [Note: buffers]
/// A buffer is free, or has a block that is arriving, held, leaving (it is
/// being written) or clean: the store has the same bytes, so the buffer may be
/// given to another block. A block that still has its buffer is not read again.
/// Who needs a buffer takes a free one; else the clean one that was used
/// longest ago; acquire() then waits for the write that began first, and at
/// last gives up the block that was prefetched last. What prefetch() promised
/// is not taken by another prefetch().
///
///     StagedBlocks moments(make_nvme_store({folder, bytes}), bytes, 3);
///     for (int unit = 0; unit < num_units; ++unit) {
///       moments.prefetch(unit + 1 < num_units ? unit + 1 : 0);
///       update(unit, moments.acquire(unit));
///       moments.release(unit, Use::Changed);
///     }
///
/// Memory   `buffers` times the largest block there may be, rounded up to
///          kOffloadAlignment; taken at once, and when buffers grow
/// Threads  one at a time; transfers go on without calls
/// Throws   OffloadError where a transfer failed or took too long: also from
///          calls for another block, which were to get its buffer. It is thrown
///          again then, as the block cannot be had. std::logic_error for calls
///          that do not fit each other
class StagedBlocks {
 public:
  /// `block_bytes`: those with which the store was made. One buffer or more;
  /// two let one block be read or written while another is held, three do both.
  /// Buffers have room for the largest of those blocks, and for `least_bytes`.
  ///
  /// Throws  OffloadError where the memory is not there
  StagedBlocks(std::unique_ptr<OffloadStore> store,
               std::vector<std::int64_t> block_bytes, int buffers,
               std::int64_t least_bytes = 0);
  /// Ends transfers that are under way. What was not flushed need not be in the
  /// store, which goes as well.
  ~StagedBlocks() = default;
  StagedBlocks(const StagedBlocks&) = delete;
  StagedBlocks& operator=(const StagedBlocks&) = delete;

  /// Makes more blocks, of no more bytes than a buffer has.
  ///
  /// Throws  OffloadError where the store has no room
  void add_blocks(const std::vector<std::int64_t>& block_bytes);

  /// From now on there are so many buffers, each with room for so many bytes,
  /// or more of either where there were more. Larger ones begin without blocks.
  ///
  /// Throws  std::logic_error where buffers get larger while one is held;
  ///         OffloadError where the memory is not there
  void grow_buffers(int buffers, std::int64_t bytes_each);

  /// Begins to read the block where that needs no waiting for a buffer; else
  /// does nothing. Whether acquire() will find the block there or on its way; a
  /// block that was never written is, as it needs no read.
  bool prefetch(int block);

  /// The bytes of the block, to be read and changed until release(); reads them
  /// now where they were not prefetched. Zeros, without a read, where they were
  /// never released as changed.
  ///
  /// Throws  std::logic_error where the block is held already, or where all
  ///         buffers are held
  std::span<std::byte> acquire(int block);

  /// The same for a block of which every byte is to be written: nothing is
  /// read, and its bytes are of any value. Ends with release() as Changed.
  std::span<std::byte> overwrite(int block);

  /// Ends the use of the block. Changed: begins to write it. Unchanged: its
  /// bytes are those that acquire() returned.
  void release(int block, Use use);

  /// Waits until every changed block is in the store.
  void flush();

  /// Takes the buffers from blocks [first, last), once their transfers are
  /// over: the store's bytes are about to change, or have, by another way.
  ///
  /// Throws  std::logic_error where one of them is held
  void forget(int first, int last);

  /// The store's own memory of blocks [first, last), one after the other: to
  /// read and write many of them outside of buffers (OffloadStore::map).
  ///
  /// Requires  none of them is held, and none is prefetched, acquired or
  ///           released before its last use
  std::shared_ptr<std::byte> map(int first, int last);

  [[nodiscard]] int num_blocks() const {
    return static_cast<int>(block_bytes_.size());
  }
  [[nodiscard]] int num_buffers() const {
    return static_cast<int>(buffers_.size());
  }
  /// Buffers that prefetch() promised to blocks which were not acquired yet.
  [[nodiscard]] int num_promised() const;
  [[nodiscard]] std::int64_t buffer_bytes() const;
  [[nodiscard]] OffloadCounters counters() const;
  [[nodiscard]] const OffloadStore& store() const { return *store_; }
  [[nodiscard]] OffloadStore& store() { return *store_; }
  /// See OffloadStore.
  void record_transfers(bool on) { store_->record_transfers(on); }
  std::vector<TransferSpan> take_transfers() {
    return store_->take_transfers();
  }
  /// "3 buffers of 8192 bytes; " and what the store says of itself.
  [[nodiscard]] std::string describe() const;

 private:
  enum class State { Free, Arriving, Held, Leaving, Clean };
  struct Buffer {
    State state = State::Free;
    int block = -1;             // whose bytes are or will be there
    bool wanted = false;        // by a prefetch() that acquire() will follow
    std::int64_t last_use = 0;  // release() or prefetch(), in order
  };

  void check_block(int block) const;
  [[nodiscard]] Buffer* buffer_of(int block);
  [[nodiscard]] std::span<std::byte> memory_of(const Buffer& buffer,
                                               int block) const;
  void settle_finished();
  void settle(Buffer& buffer);
  void start_read(Buffer& buffer, int block);
  [[nodiscard]] Buffer* find_idle();
  Buffer& wait_for_idle();
  void check_not_held(int block);
  Buffer& bring(int block);
  std::span<std::byte> hold(Buffer& buffer, int block);

  std::vector<std::int64_t> block_bytes_;
  std::int64_t bytes_per_buffer_ = 0;
  std::vector<Buffer> buffers_;
  std::vector<detail::AlignedMemory> memory_;  // by buffer
  std::unique_ptr<OffloadStore> store_;        // ends first: it uses the memory
  std::vector<bool> written_;                  // by block
  std::int64_t uses_ = 0;
  OffloadCounters counters_;  // without the store's traffic
};

}  // namespace accordion
