// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include "accordion/offload/paged_arrays.h"
#include "accordion/optim/adamw.h"

namespace accordion {

/// What a run keeps out of memory: moments, and of the module gradients,
/// parameters and activations.
///
/// Lifetime  within that of both
class OffloadedRun {
 public:
  OffloadedRun(const torch::nn::Module& root, AdamW& optimizer);

  /// Of all, since they were made; nullopt where nothing is offloaded.
  [[nodiscard]] std::optional<OffloadCounters> counters() const;
  /// Whether transfers are noted, and those noted since the last call.
  void record_transfers(bool on);
  std::vector<TransferSpan> take_transfers();
  /// What is offloaded and how, a line each.
  [[nodiscard]] std::vector<std::string> describe() const;

 private:
  struct Part {
    const char* name;
    std::shared_ptr<PagedArrays> pages;
  };

  AdamW& optimizer_;
  std::vector<Part> parts_;  // of the module
};

}  // namespace accordion
