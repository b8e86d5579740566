// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cstdint>

/// Compiles a function several times and picks the variant at start-up by what
/// the processor can do: plain x86-64, with AVX2 and FMA, with AVX-512. What
/// the function calls must be inlined into it to count (ACCORDION_INLINE).
///
/// Left out where the compiler cannot, and under sanitizers: the resolvers run
/// before a sanitizer's runtime is ready. ACCORDION_ONE_VARIANT leaves it out
/// too: tests build each variant alone.
#if !defined(ACCORDION_ONE_VARIANT) && defined(__x86_64__) &&         \
    defined(__gnu_linux__) &&                                         \
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

/// An IEEE 754 half as it lies in memory.
struct Fp16 {
  std::uint16_t bits;
};

ACCORDION_INLINE float to_float(float value) {
  return value;
}

ACCORDION_INLINE float to_float(Bf16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

ACCORDION_INLINE float to_float(Fp16 value) {
  const std::uint32_t magnitude = value.bits & 0x7fffU;
  // In place, but with a half's bias: 2^112 corrects it, and makes a subnormal
  // half a normal float.
  const float scaled =
      std::bit_cast<float>(magnitude << 13) * std::bit_cast<float>(0x77800000U);
  const std::uint32_t bits = magnitude >= 0x7c00U
                                 ? 0x7f800000U | (magnitude << 13)
                                 : std::bit_cast<std::uint32_t>(scaled);
  return std::bit_cast<float>(((value.bits & 0x8000U) << 16) | bits);
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

/// Rounds to nearest, ties to even, to infinity from 65520 on; NaN stays NaN.
ACCORDION_INLINE void store(Fp16& to, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  const std::uint32_t normal =
      (magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
  // Below 2^-14: next to 0.5, floats are multiples of the smallest half.
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) -
      0x3f000000U;
  std::uint32_t half = magnitude < 0x38800000U ? subnormal : normal;
  half = magnitude >= 0x477ff000U ? 0x7c00U : half;
  half = magnitude > 0x7f800000U ? 0x7e00U : half;
  to.bits = static_cast<std::uint16_t>(((bits >> 16) & 0x8000U) | half);
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
