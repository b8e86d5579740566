// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace accordion {

/// What a GradScaler goes by besides its options: a run that is resumed goes on
/// with it. Without tensors, so that it can be kept anywhere.
struct GradScalerState {
  double scale = 65536.0;
  std::int64_t finite_steps = 0;   ///< since the scale changed
  std::int64_t skips_in_row = 0;   ///< up to now
  std::int64_t skipped_steps = 0;  ///< in all

  bool operator==(const GradScalerState&) const = default;
};

}  // namespace accordion
