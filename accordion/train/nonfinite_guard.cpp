// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/nonfinite_guard.h"

#include <cmath>
#include <stdexcept>

#include <fmt/format.h>

namespace accordion {

bool NonfiniteGuard::takes_step(std::int64_t step, double grad_norm,
                                const std::function<std::string()>& why) {
  if (std::isfinite(grad_norm) || config_.train.nonfinite == "allow") {
    skipped_ = 0;
    return true;
  }
  const bool skips = config_.train.nonfinite == "skip";
  if (skips && ++skipped_ <= config_.train.max_skips) {
    return false;
  }
  const std::string history =
      skips ? fmt::format(
                  " The {} steps before were skipped for the same, as "
                  "many as train.max_skips allows.",
                  config_.train.max_skips)
            : std::string(" train.nonfinite = \"skip\" leaves out such steps.");
  throw std::runtime_error(fmt::format(
      "[train] The gradient at step {} is not finite (norm {}): {}.{} "
      "Lower optimizer.lr (now {}), lengthen schedule.warmup_steps, or "
      "use fsdp.param_dtype = \"fp32\".",
      step, grad_norm, why(), history, config_.optimizer.lr));
}

}  // namespace accordion
