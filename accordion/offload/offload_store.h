// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "accordion/offload/offload_error.h"

namespace accordion {

/// Where the memory of a transfer starts, and of what its size is a multiple:
/// the most that disks and file systems ask of direct transfers.
inline constexpr std::int64_t kOffloadAlignment = 4096;

/// `bytes`, rounded up to kOffloadAlignment.
[[nodiscard]] constexpr std::int64_t offload_aligned(std::int64_t bytes) {
  return (bytes + kOffloadAlignment - 1) / kOffloadAlignment *
         kOffloadAlignment;
}

/// What a store has moved since it was made; bytes as transferred, rounded up.
struct OffloadTraffic {
  std::int64_t bytes_read = 0;
  std::int64_t bytes_written = 0;
  /// During which at least one transfer was under way: the bytes over these
  /// seconds are the bandwidth achieved.
  double seconds_in_flight = 0;
};

/// A transfer that is over; times are of the steady clock.
struct TransferSpan {
  bool is_write = false;
  int block = 0;
  std::int64_t bytes = 0;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

/// Where blocks of bytes live that are not in the memory in which they are
/// used. Their sizes are given when they are made, with the store or later; a
/// block that was never written reads as zeros.
///
/// Transfers of one block follow each other in the order in which they were
/// started: a second one waits until the first is done.
///
/// Threads   called from one thread at a time; transfers go on without calls
/// Lifetime  memory that was passed is read or written until wait(), or until
///           the destructor has returned, which ends what is under way
class OffloadStore {
 public:
  virtual ~OffloadStore() = default;
  OffloadStore(const OffloadStore&) = delete;
  OffloadStore& operator=(const OffloadStore&) = delete;

  /// Makes more blocks of these sizes, numbered on from those there are.
  ///
  /// Throws  OffloadError where there is no room, and no block is made
  virtual void add_blocks(const std::vector<std::int64_t>& block_bytes) = 0;

  /// Begins to copy a block to memory, or from memory.
  ///
  /// Requires  memory starts at a multiple of kOffloadAlignment and has the
  ///           size of the block rounded up to one
  /// Throws    OffloadError where it had to wait for an earlier transfer of the
  ///           block, as wait() does
  virtual void start_read(int block, std::span<std::byte> memory) = 0;
  virtual void start_write(int block, std::span<const std::byte> memory) = 0;

  /// Waits for all that was started for the block.
  ///
  /// Throws  OffloadError that says where and why a transfer failed, or that it
  ///         took too long. Once it failed, so does every wait until the next
  ///         transfer of the block is started
  virtual void wait(int block) = 0;

  /// Whether wait() would have to wait.
  [[nodiscard]] virtual bool in_flight(int block) const = 0;

  /// Memory of blocks [first, last), one after the other, that is the store's
  /// own: what is written there is in the blocks.
  ///
  /// Requires  no transfer of those blocks is under way while it is used; they
  ///           were made together
  /// Lifetime  the pointer's, which may outlive the store
  /// Throws    OffloadError where it cannot be had
  virtual std::shared_ptr<std::byte> map(int first, int last) = 0;

  /// Frees what memory a mapping of blocks [first, last) takes where the store
  /// keeps them elsewhere: they come back when they are touched.
  virtual void page_out(int first, int last, std::byte* mapped) = 0;

  /// How and where: "io_uring, O_DIRECT, 1048576 bytes reserved in '/scratch'".
  [[nodiscard]] virtual std::string describe() const = 0;
  /// Bytes that all blocks together take in the store.
  [[nodiscard]] virtual std::int64_t held_bytes() const = 0;
  [[nodiscard]] virtual OffloadTraffic traffic() const = 0;

  /// Whether transfers that end from now on are noted; at first they are not.
  virtual void record_transfers(bool on) = 0;
  /// Those noted since the last call.
  virtual std::vector<TransferSpan> take_transfers() = 0;

 protected:
  OffloadStore() = default;
};

}  // namespace accordion
