// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "accordion/offload/host_store.h"
#include "accordion/offload/offload_store.h"

namespace accordion {

/// Where flat arrays live that are kept out of memory, and through what they
/// pass when they are used: blocks of a store, read ahead and written behind.
struct OffloadTarget {
  /// Makes a store of blocks of these sizes.
  std::function<std::unique_ptr<OffloadStore>(
      const std::vector<std::int64_t>& block_bytes)>
      make_store;
  /// Of a block, the unit of reading and writing; a multiple of
  /// kOffloadAlignment. Smaller arrays have smaller ones.
  std::int64_t block_bytes = 8 << 20;
  /// Blocks in memory at a time, 2 or more: what is used together. Further ones
  /// are read ahead or written meanwhile.
  int buffers = 8;
  /// Buffers take no more than one part in so many of what is offloaded, or two
  /// blocks: there are fewer then, of smaller blocks where all arrays are known
  /// beforehand. 1 or more.
  int share = 4;
  /// Set where arrays are in memory of the host: what a device has offloaded
  /// lies there, and passes through no buffers.
  HostPool* host = nullptr;

  /// How many buffers serve so many blocks.
  [[nodiscard]] int buffers_for(std::int64_t num_blocks) const;

  /// The same with the blocks and buffers that arrays of these bytes have.
  [[nodiscard]] OffloadTarget fitted_to(
      const std::vector<std::int64_t>& array_bytes) const;

  /// Of the buffers.
  [[nodiscard]] std::int64_t buffer_bytes() const {
    return buffers * block_bytes;
  }
};

/// On the disk of `folder`, in a file without a name (NvmeOptions).
OffloadTarget offload_to_nvme(std::filesystem::path folder);

/// In memory of the host, apart from that in which arrays are used: of a CUDA
/// device, or of a CPU, where the pool plays the host. `pool` outlives what is
/// offloaded.
OffloadTarget offload_to_host(HostPool& pool);

/// Throws std::invalid_argument, prefixed with `caller`, for sizes out of range
void check_target(const OffloadTarget& target, std::string_view caller);

}  // namespace accordion
