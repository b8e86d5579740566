// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "accordion/ops/kernels/vectorize.h"

// [Note: stochastic rounding]
// A float between two bf16 neighbours goes to the upper one with the
// probability of its distance from the lower one, so that the mean of what is
// stored is the float: steps far below the spacing of bf16 add up, which
// rounding to nearest would lose one by one.
//
// The random bits have no state. Those of an element are a hash of its number
// within the parameter under a key, which whoever calls the kernel derives from
// seed, parameter and step: neither threads nor the cut over ranks nor a pause
// between steps change them.
namespace accordion::kernels {

/// 32 bits for element number `element`: as `element` runs through all values
/// each result occurs once, so that both halves are uniform. A finaliser of
/// the kind that MurmurHash3 has, with its constants, and a word of the key
/// before each multiplication. Two multiplications do not hide that keys are
/// alike.
///
/// Requires  words of the key that are random themselves, such as Philox's
ACCORDION_INLINE std::uint32_t random_bits(
    std::uint32_t element, const std::array<std::uint32_t, 2>& key) {
  std::uint32_t x = element ^ key[0];
  x = (x ^ (x >> 16)) * 0x85ebca6bU;
  x = (x ^ (x >> 13) ^ key[1]) * 0xc2b2ae35U;
  return x ^ (x >> 16);
}

/// Rounds up with probability `value`'s distance from the neighbour towards
/// zero over their spacing. Exact values, infinities and NaN stay.
///
/// Requires  random < 2^16, uniform
ACCORDION_INLINE void store(Bf16& to, float value, std::uint32_t random) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t quiet = 0x7fc0U;
  to.bits = static_cast<std::uint16_t>(
      (bits & 0x7fffffffU) > 0x7f800000U ? quiet : (bits + random) >> 16);
}

ACCORDION_INLINE void store(float& to, float value, std::uint32_t /*random*/) {
  to = value;
}

}  // namespace accordion::kernels
