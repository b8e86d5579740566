// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "accordion/offload/host_store.h"
#include "accordion/offload/offload_store.h"

namespace accordion {

/// Keeps an optimizer's moments out of memory: in blocks of a store, which pass
/// through a few buffers as they are stepped, read ahead and written behind.
struct MomentsOffload {
  /// Makes a store of blocks of these sizes.
  std::function<std::unique_ptr<OffloadStore>(
      const std::vector<std::int64_t>& block_bytes)>
      make_store;
  /// Of a block, the unit of reading and writing; a multiple of
  /// kOffloadAlignment. Smaller shards have smaller ones.
  std::int64_t block_bytes = 8 << 20;
  /// Blocks in memory at a time, 2 or more: both moments of a stretch. With 6,
  /// the next are read and the last written while one is stepped.
  int buffers = 8;
};

/// On the disk of `folder`, in a file without a name (NvmeOptions).
MomentsOffload offload_to_nvme(std::filesystem::path folder);

/// In memory of the host, apart from that in which they are used. `pool`
/// outlives the optimizer.
MomentsOffload offload_to_host(HostPool& pool);

}  // namespace accordion
