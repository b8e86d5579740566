// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "accordion/offload/offload_store.h"

namespace accordion {

/// Counts memory of the host apart from the memory in which blocks are used,
/// and limits it. On a CPU both are the same memory, and the pool plays the
/// host of a device.
///
/// Threads   any
/// Lifetime  beyond that of the stores that take from it
class HostPool {
 public:
  /// At most `limit_bytes` at a time.
  explicit HostPool(std::int64_t limit_bytes) : limit_bytes_(limit_bytes) {}
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;

  [[nodiscard]] std::int64_t limit_bytes() const { return limit_bytes_; }
  [[nodiscard]] std::int64_t held_bytes() const;
  /// The most that was held at a time.
  [[nodiscard]] std::int64_t peak_bytes() const;

  /// Counts bytes in. Throws OffloadError where the limit leaves fewer.
  void take(std::int64_t bytes);
  void give_back(std::int64_t bytes);

 private:
  const std::int64_t limit_bytes_;
  mutable std::mutex mutex_;
  std::int64_t held_bytes_ = 0;
  std::int64_t peak_bytes_ = 0;
};

/// What is taken of a pool, given back at the end.
class HostShare {
 public:
  HostShare(HostPool& pool, std::int64_t bytes) : pool_(pool), bytes_(bytes) {
    pool_.take(bytes_);
  }
  ~HostShare() { pool_.give_back(bytes_); }
  HostShare(const HostShare&) = delete;
  HostShare& operator=(const HostShare&) = delete;

 private:
  HostPool& pool_;
  const std::int64_t bytes_;
};

/// Blocks in memory of the host. A transfer is a copy, and done when start_read
/// or start_write returns.
///
/// Memory  the blocks, each rounded up to kOffloadAlignment; of `pool`
/// Throws  OffloadError where pool or memory do not suffice
std::unique_ptr<OffloadStore> make_host_store(
    const std::vector<std::int64_t>& block_bytes, HostPool& pool);

}  // namespace accordion
