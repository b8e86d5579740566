// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cstdint>

/// Compiles a function several times and picks the variant at start-up by what
/// the processor can do: plain x86-64, with AVX2 and FMA, with AVX-512. What
/// the function calls must be inlined into it to count (ACCORDION_INLINE).
///
/// Left out where the compiler cannot, and under sanitizers: the resolvers run
/// before a sanitizer's runtime is ready.
#if defined(__x86_64__) && defined(__gnu_linux__) &&                  \
    ((defined(__clang__) && __clang_major__ >= 17) ||                 \
     (!defined(__clang__) && defined(__GNUC__) && __GNUC__ >= 12)) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define ACCORDION_VECTORIZE \
  __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define ACCORDION_VECTORIZE
#endif
#define ACCORDION_INLINE inline __attribute__((always_inline))

namespace accordion::kernels {

/// A bfloat16 as it lies in memory: the upper half of a float.
struct Bf16 {
  std::uint16_t bits;
};

ACCORDION_INLINE float to_float(float value) {
  return value;
}

ACCORDION_INLINE float to_float(Bf16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

ACCORDION_INLINE void store(float& to, float value) {
  to = value;
}

/// Rounds to nearest, ties to even; NaN stays NaN.
ACCORDION_INLINE void store(Bf16& to, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const std::uint32_t quiet = 0x7fc0U;
  to.bits = static_cast<std::uint16_t>(
      (bits & 0x7fffffffU) > 0x7f800000U ? quiet : rounded);
}

/// e^x to 2 units in the last place, without branches so that loops over it
/// vectorise. Arguments are clamped to [-87, 88]; NaN stays NaN.
///
/// x = n ln 2 + r with |r| <= ln 2 / 2; e^r is its Taylor sum to r^7, whose
/// remainder is below 6e-9, and 2^n goes into the exponent bits.
ACCORDION_INLINE float fast_exp(float x) {
  x = x < -87.0F ? -87.0F : x;
  x = x > 88.0F ? 88.0F : x;
  // Adding 1.5 * 2^23 rounds to an integer, which then fills the low bits.
  constexpr float kRound = 12582912.0F;
  const float shifted = x * 1.44269504F + kRound;
  const float n = shifted - kRound;
  // ln 2 in two parts: the first has so few bits that n times it is exact.
  float r = x - n * 0.693145751953125F;
  r = r - n * 1.428606765330187e-06F;
  float sum = 1.0F / 5040;
  sum = sum * r + 1.0F / 720;
  sum = sum * r + 1.0F / 120;
  sum = sum * r + 1.0F / 24;
  sum = sum * r + 1.0F / 6;
  sum = sum * r + 0.5F;
  sum = sum * r + 1.0F;
  sum = sum * r + 1.0F;
  const std::uint32_t exponent = (std::bit_cast<std::uint32_t>(shifted) + 127U)
                                 << 23;
  return sum * std::bit_cast<float>(exponent);
}

}  // namespace accordion::kernels
