// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "accordion/train/train_config.h"

namespace accordion {

/// What becomes of a step whose gradient is infinite or no number, as
/// train.nonfinite says. Ranks that see the same norms decide alike.
class NonfiniteGuard {
 public:
  explicit NonfiniteGuard(const TrainConfig& config) : config_(config) {}

  /// Whether the optimizer takes the step. `why` says where the fault is ("the
  /// first unit at fault is 'model.layers.3'"); it is asked only for an error.
  ///
  /// Throws std::runtime_error under "error", and under "skip" after
  ///        train.max_skips skipped steps in a row
  bool takes_step(std::int64_t step, double grad_norm,
                  const std::function<std::string()>& why);

  /// Steps skipped in a row: those of a run that is resumed count.
  [[nodiscard]] std::int64_t skipped() const { return skipped_; }
  void set_skipped(std::int64_t steps) { skipped_ = steps; }

 private:
  const TrainConfig& config_;
  std::int64_t skipped_ = 0;  // in a row
};

}  // namespace accordion
