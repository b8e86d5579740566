// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "accordion/module/init_rule.h"

namespace accordion {

/// How parameter `name` starts: matrices normal with mean 0 and deviation
/// `deviation`, the weights of norms (one dim) 1, biases (names that end in
/// "bias") 0.
InitRule initial_rule(std::string_view name,
                      std::span<const std::int64_t> shape,
                      double deviation = 0.02);

/// Fresh weights by that rule: elements [begin, begin + into.size()) of
/// parameter `name`, in row-major order. A value depends on seed, name and
/// element alone, so it is the same whatever the number of ranks and whoever
/// draws it.
void initialize(std::string_view name, std::span<const std::int64_t> shape,
                std::int64_t begin, std::uint64_t seed, std::span<float> into,
                double deviation = 0.02);

}  // namespace accordion
