// SPDX-License-Identifier: BSD-3-Clause
//
// Uses a part of Accordion that needs a library of the system's.
#include <cstdint>
#include <cstdio>
#include <vector>

#include "accordion/offload/nvme_store.h"
#include "accordion/offload/staged_blocks.h"

int main(int, char** argv) {
  const std::vector<std::int64_t> bytes = {100, 100};
  accordion::StagedBlocks blocks(
      accordion::make_nvme_store({.folder = argv[1], .block_bytes = bytes}),
      bytes, 1);
  blocks.acquire(0)[99] = std::byte{7};
  blocks.release(0, accordion::Use::Changed);
  (void)blocks.acquire(1);
  blocks.release(1, accordion::Use::Unchanged);
  std::printf("%s\n", blocks.describe().c_str());
  return blocks.acquire(0)[99] == std::byte{7} ? 0 : 1;
}
