// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace accordion {

enum class LrDecay : std::uint8_t {
  Constant,  ///< stays at the peak
  Cosine,    ///< half a cosine wave from the peak to min_ratio of it
  Linear,    ///< a straight line from the peak to min_ratio of it
  Wsd,       ///< warm-up, stable, decay: the peak until the last decay_steps
};

/// How the last part of Wsd falls from the peak.
enum class WsdShape : std::uint8_t {
  Linear,
  OneMinusSqrt,  ///< 1 - sqrt(position): steep first, then flat
};

/// How the learning rate moves over a run: a linear rise, then the decay.
struct LrSchedule {
  LrDecay decay = LrDecay::Constant;
  double peak = 0.0;
  std::int64_t warmup_steps = 0;  ///< 0: starts at the peak
  std::int64_t total_steps = 0;   ///< 0: only time ends the run
  double min_ratio = 0.0;         ///< of the last rate over the peak
  std::int64_t decay_steps = 0;   ///< of Wsd; 0: the last fifth of the run
  WsdShape shape = WsdShape::Linear;
};

/// The learning rate of `step`, counted from 0: (step + 1) / warmup_steps of
/// the peak in the rise, the least rate at step total_steps - 1.
///
/// `elapsed` in [0, 1] is the spent part of a time budget; the decay is as far
/// as steps or time are, whichever is further.
///
/// Source  Wsd: Hu et al. 2024, arXiv:2404.06395; 1 - sqrt: Hägele et al. 2024,
///         arXiv:2405.18392
[[nodiscard]] double learning_rate(const LrSchedule& schedule,
                                   std::int64_t step, double elapsed = 0.0);

}  // namespace accordion
