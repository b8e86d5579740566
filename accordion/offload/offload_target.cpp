// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/offload/offload_target.h"

#include <algorithm>
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
  return {.make_store =
              [&pool](const std::vector<std::int64_t>& block_bytes) {
                return make_host_store(block_bytes, pool);
              },
          .host = &pool};
}

int OffloadTarget::buffers_for(std::int64_t num_blocks) const {
  const std::int64_t part = (num_blocks + share - 1) / share;
  return static_cast<int>(
      std::min(std::max(part, std::int64_t{2}), std::int64_t{buffers}));
}

OffloadTarget OffloadTarget::fitted_to(
    const std::vector<std::int64_t>& array_bytes) const {
  std::int64_t all = 0;
  std::int64_t largest = 0;
  for (const std::int64_t bytes : array_bytes) {
    all += offload_aligned(bytes);
    largest = std::max(largest, offload_aligned(bytes));
  }
  // Smaller blocks before fewer buffers: what is read ahead and written behind
  // then goes on beside what is used.
  const std::int64_t part = all / (std::int64_t{share} * buffers);
  OffloadTarget fitted = *this;
  fitted.block_bytes =
      std::max(std::min({block_bytes, largest,
                         part / kOffloadAlignment * kOffloadAlignment}),
               kOffloadAlignment);
  std::int64_t num_blocks = 0;
  for (const std::int64_t bytes : array_bytes) {
    num_blocks += (bytes + fitted.block_bytes - 1) / fitted.block_bytes;
  }
  fitted.buffers = buffers_for(num_blocks);
  return fitted;
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
  if (target.share < 1) {
    throw std::invalid_argument(fmt::format(
        "[{}] offload.share is {}: buffers take one part in so many of what is "
        "offloaded, so give 1 or more.",
        caller, target.share));
  }
}

}  // namespace accordion
