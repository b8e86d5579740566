// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace accordion {
namespace {

/// How far the decay has come, from 0 to 1.
double decay_position(const LrSchedule& schedule, std::int64_t step,
                      double elapsed) {
  double by_steps = 0.0;
  if (schedule.total_steps > 0) {
    const std::int64_t last = schedule.total_steps - 1;
    const auto span = static_cast<double>(last - schedule.warmup_steps);
    const auto done = static_cast<double>(step - schedule.warmup_steps);
    by_steps = span > 0 ? done / span : 1.0;
  }
  return std::clamp(std::max(by_steps, elapsed), 0.0, 1.0);
}

}  // namespace

double learning_rate(const LrSchedule& schedule, std::int64_t step,
                     double elapsed) {
  if (step < schedule.warmup_steps) {
    return schedule.peak * static_cast<double>(step + 1) /
           static_cast<double>(schedule.warmup_steps);
  }
  if (schedule.decay == LrDecay::Constant) {
    return schedule.peak;
  }
  const double position = decay_position(schedule, step, elapsed);
  const double wave = 0.5 * (1.0 + std::cos(std::numbers::pi * position));
  return schedule.peak *
         (schedule.min_ratio + (1.0 - schedule.min_ratio) * wave);
}

}  // namespace accordion
