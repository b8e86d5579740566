// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/offload/offload_target.h"

#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "accordion/offload/nvme_store.h"

namespace accordion {

OffloadTarget offload_to_nvme(std::filesystem::path folder) {
  return {.make_store = [folder = std::move(folder)](
                            const std::vector<std::int64_t>& block_bytes) {
    return make_nvme_store({.folder = folder, .block_bytes = block_bytes});
  }};
}

OffloadTarget offload_to_host(HostPool& pool) {
  return {.make_store = [&pool](const std::vector<std::int64_t>& block_bytes) {
    return make_host_store(block_bytes, pool);
  }};
}

void check_target(const OffloadTarget& target, std::string_view caller) {
  if (!target.make_store) {
    throw std::invalid_argument(fmt::format(
        "[{}] offload.make_store is empty; use offload_to_nvme(folder) or "
        "offload_to_host(pool).",
        caller));
  }
  if (target.block_bytes <= 0 || target.block_bytes % kOffloadAlignment != 0) {
    throw std::invalid_argument(
        fmt::format("[{}] offload.block_bytes is {}; give a multiple of {}.",
                    caller, target.block_bytes, kOffloadAlignment));
  }
  if (target.buffers < 2) {
    throw std::invalid_argument(fmt::format(
        "[{}] offload.buffers is {}; what is used together needs one each, so "
        "give 2 or more.",
        caller, target.buffers));
  }
}

}  // namespace accordion
