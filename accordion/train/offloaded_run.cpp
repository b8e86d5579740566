// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/offloaded_run.h"

#include <fmt/format.h>

#include "accordion/fsdp/sharded_module.h"

namespace accordion {

OffloadedRun::OffloadedRun(const torch::nn::Module& root, AdamW& optimizer)
    : optimizer_(optimizer) {
  for (const Part& part : {Part{"shards", offloaded_shards(root)},
                           Part{"activations", offloaded_activations(root)}}) {
    if (part.pages) {
      parts_.push_back(part);
    }
  }
}

std::optional<OffloadCounters> OffloadedRun::counters() const {
  std::optional<OffloadCounters> sum = optimizer_.offload_counters();
  for (const Part& part : parts_) {
    if (!sum) {
      sum.emplace();
    }
    *sum += part.pages->blocks().counters();
  }
  return sum;
}

void OffloadedRun::record_transfers(bool on) {
  optimizer_.record_transfers(on);
  for (const Part& part : parts_) {
    part.pages->blocks().record_transfers(on);
  }
}

std::vector<TransferSpan> OffloadedRun::take_transfers() {
  std::vector<TransferSpan> all = optimizer_.take_transfers();
  for (const Part& part : parts_) {
    const auto some = part.pages->blocks().take_transfers();
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

std::vector<std::string> OffloadedRun::describe() const {
  std::vector<std::string> lines;
  if (const std::string moments = optimizer_.describe_offload();
      !moments.empty()) {
    lines.push_back(fmt::format("moments offloaded: {}", moments));
  }
  for (const Part& part : parts_) {
    lines.push_back(fmt::format("{} offloaded: {}", part.name,
                                part.pages->blocks().describe()));
  }
  return lines;
}

}  // namespace accordion
