// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/module/init_rule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "accordion/module/philox.h"

namespace accordion {
namespace {

using Lanes = std::array<float, 4>;

/// Spreads every bit of x over the whole word (the finaliser of splitmix64).
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

Lanes normals(const Philox::Block& words, double mean, double deviation) {
  Lanes result{};
  for (int pair = 0; pair < 2; ++pair) {
    const double radius =
        deviation * std::sqrt(-2 * std::log(to_unit(words[2 * pair])));
    const double angle = 2 * std::numbers::pi * to_unit(words[2 * pair + 1]);
    result[2 * pair] = static_cast<float>(mean + radius * std::cos(angle));
    result[2 * pair + 1] = static_cast<float>(mean + radius * std::sin(angle));
  }
  return result;
}

Lanes uniforms(const Philox::Block& words, double low, double high) {
  Lanes result{};
  for (std::size_t lane = 0; lane < result.size(); ++lane) {
    result[lane] =
        static_cast<float>(low + (high - low) * to_unit(words[lane]));
  }
  return result;
}

/// Fills `into` with what `lanes_of` makes of the blocks that it lies in.
template <class LanesOf>
void draw(std::uint64_t key, std::int64_t begin, std::span<float> into,
          LanesOf&& lanes_of) {
  const Philox random(key);
  const auto numel = static_cast<std::int64_t>(into.size());
  for (std::int64_t i = 0; i < numel;) {
    const std::int64_t element = begin + i;
    const Lanes lanes =
        lanes_of(random.block(static_cast<std::uint64_t>(element / 4)));
    for (std::int64_t lane = element % 4; lane < 4 && i < numel; ++lane, ++i) {
      into[static_cast<std::size_t>(i)] = lanes[static_cast<std::size_t>(lane)];
    }
  }
}

}  // namespace

// FNV-1a over the name.
std::uint64_t random_key(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char letter : name) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3ULL;
  }
  return mixed(hash + mixed(seed + 0x9e3779b97f4a7c15ULL));
}

void fill(const InitRule& rule, std::uint64_t key, std::int64_t begin,
          std::span<float> into) {
  switch (rule.kind) {
    case InitRule::Kind::Constant:
      std::ranges::fill(into, static_cast<float>(rule.first));
      break;
    case InitRule::Kind::Uniform:
      draw(key, begin, into, [&](const Philox::Block& words) {
        return uniforms(words, rule.first, rule.second);
      });
      break;
    case InitRule::Kind::Normal:
      draw(key, begin, into, [&](const Philox::Block& words) {
        return normals(words, rule.first, rule.second);
      });
      break;
  }
  const auto numel = static_cast<std::int64_t>(into.size());
  const std::int64_t zero_begin =
      std::clamp<std::int64_t>(rule.zero_begin - begin, 0, numel);
  const std::int64_t zero_end =
      std::clamp<std::int64_t>(rule.zero_end - begin, zero_begin, numel);
  std::fill(into.begin() + zero_begin, into.begin() + zero_end, 0.0F);
}

}  // namespace accordion
