// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/element_kernels.h"

#include <bit>

// One copy of each loop per instruction set, chosen when the program is loaded.
// Not under a sanitizer: the chooser runs before the sanitizer is ready.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define ACCORDION_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define ACCORDION_CLONES
#endif

namespace accordion::detail {
namespace {

inline float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

inline std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  // Half of the dropped part, less one where the kept part is even: ties then
  // go to even, and a carry into the exponent is the right answer.
  const std::uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
  // A NaN could round to infinity: drop its low bits and set the quiet one.
  return static_cast<std::uint16_t>(is_nan ? (bits >> 16) | 0x40 : rounded);
}

inline float from_fp16(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16;
  const std::uint32_t magnitude = half & 0x7fff;
  // Exponent and mantissa move into place; multiplying by 2^112 corrects the
  // exponent's bias and normalises subnormals at once.
  const float scaled =
      std::bit_cast<float>(magnitude << 13) * std::bit_cast<float>(0x77800000u);
  const std::uint32_t special = 0x7f800000u | (magnitude << 13);
  const std::uint32_t bits =
      magnitude >= 0x7c00 ? special : std::bit_cast<std::uint32_t>(scaled);
  return std::bit_cast<float>(sign | bits);
}

inline std::uint16_t to_fp16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000;
  const std::uint32_t magnitude = bits & 0x7fffffff;
  const std::uint32_t normal =
      (magnitude - 0x38000000u + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  // Below 2^-14: adding 0.5 makes the FPU round to a multiple of 2^-24, the
  // smallest half, and leaves the count in the low mantissa bits.
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
      0x3f000000u;
  std::uint32_t half = magnitude < 0x38800000u ? subnormal : normal;
  half = magnitude >= 0x477ff000u ? 0x7c00u : half;  // rounds to infinity
  half = magnitude > 0x7f800000u ? 0x7e00u | ((magnitude >> 13) & 0x3ff) : half;
  return static_cast<std::uint16_t>(sign | half);
}

}  // namespace

ACCORDION_CLONES
void bf16_to_fp32(float* __restrict to, const std::uint16_t* __restrict from,
                  std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; ++i) {
    to[i] = from_bf16(from[i]);
  }
}

ACCORDION_CLONES
void fp32_to_bf16(std::uint16_t* __restrict to, const float* __restrict from,
                  std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; ++i) {
    to[i] = to_bf16(from[i]);
  }
}

ACCORDION_CLONES
void fp16_to_fp32(float* __restrict to, const std::uint16_t* __restrict from,
                  std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; ++i) {
    to[i] = from_fp16(from[i]);
  }
}

ACCORDION_CLONES
void fp32_to_fp16(std::uint16_t* __restrict to, const float* __restrict from,
                  std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; ++i) {
    to[i] = to_fp16(from[i]);
  }
}

ACCORDION_CLONES
void add_fp32(float* __restrict sum, const float* __restrict from,
              std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; ++i) {
    sum[i] += from[i];
  }
}

ACCORDION_CLONES
void add_bf16(float* __restrict sum, const std::uint16_t* __restrict from,
              std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; ++i) {
    sum[i] += from_bf16(from[i]);
  }
}

ACCORDION_CLONES
void add_fp64(double* __restrict sum, const double* __restrict from,
              std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; ++i) {
    sum[i] += from[i];
  }
}

ACCORDION_CLONES
void add_pair_fp32(float* sum, const float* a, const float* b, float scale,
                   std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; ++i) {
    sum[i] = (a[i] + b[i]) * scale;
  }
}

ACCORDION_CLONES
void add_pair_bf16(float* __restrict sum, const std::uint16_t* __restrict a,
                   const std::uint16_t* __restrict b, float scale,
                   std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; ++i) {
    sum[i] = (from_bf16(a[i]) + from_bf16(b[i])) * scale;
  }
}

ACCORDION_CLONES
void scale_fp32(float* values, float scale, std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; ++i) {
    values[i] *= scale;
  }
}

ACCORDION_CLONES
void scale_fp64(double* values, double scale, std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; ++i) {
    values[i] *= scale;
  }
}

ACCORDION_CLONES
void add_squares_fp32(double* __restrict lanes, const float* __restrict from,
                      std::int64_t numel) {
  std::int64_t first = 0;
  for (; first + kSquareLanes <= numel; first += kSquareLanes) {
    for (std::int64_t lane = 0; lane < kSquareLanes; ++lane) {
      const double value = from[first + lane];
      lanes[lane] += value * value;
    }
  }
  for (std::int64_t lane = 0; first + lane < numel; ++lane) {
    const double value = from[first + lane];
    lanes[lane] += value * value;
  }
}

ACCORDION_CLONES
void add_squares_fp64(double* __restrict lanes, const double* __restrict from,
                      std::int64_t numel) {
  std::int64_t first = 0;
  for (; first + kSquareLanes <= numel; first += kSquareLanes) {
    for (std::int64_t lane = 0; lane < kSquareLanes; ++lane) {
      lanes[lane] += from[first + lane] * from[first + lane];
    }
  }
  for (std::int64_t lane = 0; first + lane < numel; ++lane) {
    lanes[lane] += from[first + lane] * from[first + lane];
  }
}

}  // namespace accordion::detail

#undef ACCORDION_CLONES
