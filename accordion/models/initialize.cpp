// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/models/initialize.h"

namespace accordion {

InitRule initial_rule(std::string_view name,
                      std::span<const std::int64_t> shape, double deviation) {
  if (name.ends_with("bias")) {
    return InitRule::constant(0);
  }
  return shape.size() < 2 ? InitRule::constant(1)
                          : InitRule::normal(0, deviation);
}

void initialize(std::string_view name, std::span<const std::int64_t> shape,
                std::int64_t begin, std::uint64_t seed, std::span<float> into,
                double deviation) {
  fill(initial_rule(name, shape, deviation), random_key(seed, name), begin,
       into);
}

}  // namespace accordion
