// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/models/initialize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "accordion/models/philox.h"

namespace accordion {
namespace {

/// Spreads every bit of x over the whole word (the finaliser of splitmix64).
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// One key for each pair of seed and name; FNV-1a over the name.
std::uint64_t key_of(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char letter : name) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3ULL;
  }
  return mixed(hash + mixed(seed + 0x9e3779b97f4a7c15ULL));
}

std::array<float, 4> normals(const Philox::Block& words, double deviation) {
  std::array<float, 4> result{};
  for (int pair = 0; pair < 2; ++pair) {
    const double radius =
        deviation * std::sqrt(-2 * std::log(to_unit(words[2 * pair])));
    const double angle = 2 * std::numbers::pi * to_unit(words[2 * pair + 1]);
    result[2 * pair] = static_cast<float>(radius * std::cos(angle));
    result[2 * pair + 1] = static_cast<float>(radius * std::sin(angle));
  }
  return result;
}

}  // namespace

void initialize(std::string_view name, std::span<const std::int64_t> shape,
                std::int64_t begin, std::uint64_t seed, std::span<float> into,
                double deviation) {
  if (name.ends_with("bias")) {
    std::ranges::fill(into, 0.0F);
    return;
  }
  if (shape.size() < 2) {
    std::ranges::fill(into, 1.0F);
    return;
  }
  const Philox random(key_of(seed, name));
  const auto numel = static_cast<std::int64_t>(into.size());
  for (std::int64_t i = 0; i < numel;) {
    const std::int64_t element = begin + i;
    const auto block = normals(
        random.block(static_cast<std::uint64_t>(element / 4)), deviation);
    for (std::int64_t lane = element % 4; lane < 4 && i < numel; ++lane, ++i) {
      into[static_cast<std::size_t>(i)] = block[static_cast<std::size_t>(lane)];
    }
  }
}

}  // namespace accordion
