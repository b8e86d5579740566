// SPDX-License-Identifier: BSD-3-Clause
// What an AdamW tells of moments that are not in memory.
#include "accordion/optim/adamw.h"

namespace accordion {

std::int64_t AdamW::held_bytes() const {
  if (!options_.offload) {
    return state_bytes_;
  }
  std::int64_t bytes = 0;
  for (const auto& pager : pagers_) {
    bytes += pager->blocks().buffer_bytes();
  }
  return bytes;
}

std::optional<OffloadCounters> AdamW::offload_counters() const {
  if (!options_.offload) {
    return std::nullopt;
  }
  OffloadCounters sum;
  for (const auto& pager : pagers_) {
    sum += pager->blocks().counters();
  }
  return sum;
}

void AdamW::record_transfers(bool on) {
  for (const auto& pager : pagers_) {
    pager->blocks().record_transfers(on);
  }
}

std::vector<TransferSpan> AdamW::take_transfers() {
  std::vector<TransferSpan> all;
  for (const auto& pager : pagers_) {
    const std::vector<TransferSpan> some = pager->blocks().take_transfers();
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

std::string AdamW::describe_offload() const {
  return pagers_.empty() ? "" : pagers_.front()->blocks().describe();
}

}  // namespace accordion
