// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/data/permutation.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include <fmt/format.h>

namespace accordion {

std::uint64_t mix_bits(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

Permutation::Permutation(std::int64_t size, std::uint64_t seed) : size_(size) {
  if (size < 1) {
    throw std::invalid_argument(fmt::format(
        "[Permutation] Cannot order {} elements; at least 1 is needed.", size));
  }
  const int bits = std::bit_width(static_cast<std::uint64_t>(size - 1));
  half_bits_ = std::max(1, (bits + 1) / 2);
  for (auto& key : keys_) {
    seed = mix_bits(seed);
    key = seed;
  }
}

std::int64_t Permutation::operator()(std::int64_t position) const {
  auto value = static_cast<std::uint64_t>(position);
  do {
    value = encrypt(value);
  } while (value >= static_cast<std::uint64_t>(size_));
  return static_cast<std::int64_t>(value);
}

std::uint64_t Permutation::encrypt(std::uint64_t value) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = value >> half_bits_;
  std::uint64_t right = value & mask;
  for (const std::uint64_t key : keys_) {
    const std::uint64_t next = left ^ (mix_bits(right ^ key) & mask);
    left = right;
    right = next;
  }
  return (left << half_bits_) | right;
}

}  // namespace accordion
