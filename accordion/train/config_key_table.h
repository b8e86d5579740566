// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "accordion/train/config_keys.h"

/// Field of a key: `ACCORDION_FIELD(train.steps)` is the pointer to that
/// member.
#define ACCORDION_FIELD(member) \
  [](TrainConfig& config) -> ConfigField { return &config.member; }

// The parts of config_keys(), and the words that they are written in.
namespace accordion::detail {

inline ConfigRange at_least(double low) {
  return {.low = low};
}
inline ConfigRange above(double low) {
  return {.low = low, .low_open = true};
}
/// From low to high, `high` itself left out.
inline ConfigRange from_to(double low, double high) {
  return {.low = low, .high = high, .high_open = true};
}

/// train, optimizer, schedule and fsdp.
std::vector<ConfigKey> training_keys();

}  // namespace accordion::detail
