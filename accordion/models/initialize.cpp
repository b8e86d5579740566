// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/models/initialize.h"

#include "accordion/module/init_rule.h"

namespace accordion {
namespace {

InitRule rule_for(std::string_view name, std::span<const std::int64_t> shape,
                  double deviation) {
  if (name.ends_with("bias")) {
    return InitRule::constant(0);
  }
  return shape.size() < 2 ? InitRule::constant(1)
                          : InitRule::normal(0, deviation);
}

}  // namespace

void initialize(std::string_view name, std::span<const std::int64_t> shape,
                std::int64_t begin, std::uint64_t seed, std::span<float> into,
                double deviation) {
  fill(rule_for(name, shape, deviation), random_key(seed, name), begin, into);
}

}  // namespace accordion
