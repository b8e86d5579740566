// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace accordion {
namespace {

/// Part of a run in which Wsd decays where decay_steps does not say.
constexpr double kWsdPart = 0.2;

/// Steps over which the rate falls from the peak to its least value.
double falling_steps(const LrSchedule& schedule) {
  const auto total = static_cast<double>(schedule.total_steps);
  if (schedule.decay == LrDecay::Wsd) {
    return schedule.decay_steps > 0 ? static_cast<double>(schedule.decay_steps)
                                    : std::ceil(kWsdPart * total);
  }
  return total - 1.0 - static_cast<double>(schedule.warmup_steps);
}

/// How far the decay has come by steps: 0 before it, 1 at the last step.
double position_by_steps(const LrSchedule& schedule, std::int64_t step) {
  if (schedule.total_steps == 0) {
    return 0.0;
  }
  const double falling = falling_steps(schedule);
  const double start = static_cast<double>(schedule.total_steps - 1) - falling;
  return falling > 0 ? (static_cast<double>(step) - start) / falling : 1.0;
}

/// The same by time: Wsd falls in the part of the run that is its decay.
double position_by_time(const LrSchedule& schedule, double elapsed) {
  if (schedule.decay != LrDecay::Wsd) {
    return elapsed;
  }
  const double part =
      schedule.total_steps > 0
          ? falling_steps(schedule) / static_cast<double>(schedule.total_steps)
          : kWsdPart;
  return 1.0 - (1.0 - elapsed) / part;
}

/// What is left of the way from the peak to the least rate, from 1 to 0.
double remaining(const LrSchedule& schedule, double position) {
  switch (schedule.decay) {
    case LrDecay::Constant:
      return 1.0;
    case LrDecay::Cosine:
      return 0.5 * (1.0 + std::cos(std::numbers::pi * position));
    case LrDecay::Linear:
      return 1.0 - position;
    case LrDecay::Wsd:
      return schedule.shape == WsdShape::Linear ? 1.0 - position
                                                : 1.0 - std::sqrt(position);
  }
  return 1.0;
}

}  // namespace

double learning_rate(const LrSchedule& schedule, std::int64_t step,
                     double elapsed) {
  if (step < schedule.warmup_steps) {
    return schedule.peak * static_cast<double>(step + 1) /
           static_cast<double>(schedule.warmup_steps);
  }
  const double position =
      std::clamp(std::max(position_by_steps(schedule, step),
                          position_by_time(schedule, elapsed)),
                 0.0, 1.0);
  return schedule.peak *
         (schedule.min_ratio +
          (1.0 - schedule.min_ratio) * remaining(schedule, position));
}

}  // namespace accordion
