// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stdexcept>
#include <string>

#include <fmt/format.h>

#include "accordion/train/train_config.h"

namespace accordion::detail {

/// Throws what is wrong with a configuration, where it was written.
class Fault {
 public:
  explicit Fault(const std::string& place) : place_(place) {}

  void raise_if(bool wrong, const std::string& problem) const {
    if (wrong) {
      throw std::invalid_argument(
          fmt::format("[config] {}: {}", place_, problem));
    }
  }

 private:
  const std::string& place_;
};

/// Checks the keys of [memory], among themselves and with others.
void check_memory_keys(const TrainConfig& config, const Fault& fault);

}  // namespace accordion::detail
