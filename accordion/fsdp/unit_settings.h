// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <vector>

#include "accordion/fsdp/options.h"

namespace accordion {

/// What a user may change between passes, by unit (fsdp/controls.h).
struct UnitSettings {
  bool reshard_after_forward = true;
  bool reshard_after_backward = true;
  /// Stays unsharded after a forward without gradients, too.
  bool stays_in_evaluation = false;
  /// Forward keeps no activations and is called again in backward.
  bool checkpoints_activations = false;
  bool gradient_sync = true;
  bool all_reduce = true;
  std::optional<std::vector<int>> forward_prefetch = std::nullopt;
  std::optional<std::vector<int>> backward_prefetch = std::nullopt;
};

/// The same for a module as a whole.
struct PassSettings {
  bool is_last_backward = true;
  Accumulation accumulation = Accumulation::Sharded;
  bool keep_parameters = false;
  /// Sums of gradients are divided by it; unset: by the number of ranks.
  std::optional<double> divide_factor = std::nullopt;
};

}  // namespace accordion
