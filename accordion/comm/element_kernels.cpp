// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/element_kernels.h"

#include <bit>
#include <cstring>

#include "accordion/simd/past_cache.h"

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

inline float to_float(float value) {
  return value;
}
inline float to_float(std::uint16_t bits) {
  return from_bf16(bits);
}

inline void store(float& to, float value) {
  to = value;
}
inline void store(std::uint16_t& to, float value) {
  to = to_bf16(value);
}

using simd::finish_past_cache;
using simd::kLineBytes;
using simd::prefetch_ahead;
using simd::starts_a_line;
using simd::store_line_past_cache;

// Elements [first, first + count) of a pair, at most kSquareLanes.
template <Store kStore, bool kSquares, typename To, typename A, typename B>
[[gnu::always_inline]] inline void sum_some(To* to, const A* a, const B* b,
                                            float scale, double* lanes,
                                            std::int64_t count) {
  alignas(kLineBytes) float sums[kSquareLanes];
  for (std::int64_t i = 0; i < count; ++i) {
    sums[i] = (to_float(a[i]) + to_float(b[i])) * scale;
  }
  if constexpr (kStore == Store::Add) {
    for (std::int64_t i = 0; i < count; ++i) {
      sums[i] += to[i];
    }
  }
  if constexpr (kSquares) {
    for (std::int64_t i = 0; i < count; ++i) {
      lanes[i] += static_cast<double>(sums[i]) * static_cast<double>(sums[i]);
    }
  }
  if (kStore == Store::PastCache && count == kSquareLanes) {
    for (std::int64_t i = 0; i < kSquareLanes; i += kLineBytes / 4) {
      store_line_past_cache(to + i, sums + i);
    }
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      store(to[i], sums[i]);
    }
  }
}

template <Store kStore, bool kSquares, typename To, typename A, typename B>
[[gnu::always_inline]] inline void sum_all(To* to, const A* a, const B* b,
                                           float scale, double* lanes,
                                           std::int64_t numel) {
  // A copy, which no store through `to` can change: it stays in registers.
  alignas(kLineBytes) double sums[kSquareLanes] = {};
  if constexpr (kSquares) {
    std::memcpy(sums, lanes, sizeof(sums));
  }
  std::int64_t first = 0;
  for (; first + kSquareLanes <= numel; first += kSquareLanes) {
    prefetch_ahead<kSquareLanes>(a + first);
    prefetch_ahead<kSquareLanes>(b + first);
    sum_some<kStore, kSquares>(to + first, a + first, b + first, scale, sums,
                               kSquareLanes);
  }
  sum_some<kStore, kSquares>(to + first, a + first, b + first, scale, sums,
                             numel - first);
  if constexpr (kSquares) {
    std::memcpy(lanes, sums, sizeof(sums));
  }
  if constexpr (kStore == Store::PastCache) {
    finish_past_cache();
  }
}

template <typename A, typename B>
[[gnu::always_inline]] inline void sum_any(float* to, const A* a, const B* b,
                                           float scale, Store store,
                                           double* lanes, std::int64_t numel) {
  const bool squares = lanes != nullptr;
  if (store == Store::Add) {
    squares ? sum_all<Store::Add, true>(to, a, b, scale, lanes, numel)
            : sum_all<Store::Add, false>(to, a, b, scale, lanes, numel);
  } else if (store == Store::PastCache && starts_a_line(to)) {
    squares ? sum_all<Store::PastCache, true>(to, a, b, scale, lanes, numel)
            : sum_all<Store::PastCache, false>(to, a, b, scale, lanes, numel);
  } else {
    squares ? sum_all<Store::Plain, true>(to, a, b, scale, lanes, numel)
            : sum_all<Store::Plain, false>(to, a, b, scale, lanes, numel);
  }
}

template <typename To, typename From>
[[gnu::always_inline]] inline void convert_by_lines(To* to, const From* from,
                                                    std::int64_t numel) {
  constexpr std::int64_t kLine = kLineBytes / std::int64_t{sizeof(To)};
  std::int64_t first = 0;
  for (; starts_a_line(to) && first + kLine <= numel; first += kLine) {
    // Of half a line it would be asked for twice, and takes twice as long.
    if constexpr (sizeof(From) >= sizeof(To)) {
      prefetch_ahead<kLine>(from + first);
    }
    alignas(kLineBytes) To line[kLine];
    for (std::int64_t i = 0; i < kLine; ++i) {
      store(line[i], to_float(from[first + i]));
    }
    store_line_past_cache(to + first, line);
  }
  for (; first < numel; ++first) {
    store(to[first], to_float(from[first]));
  }
  finish_past_cache();
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

ACCORDION_CLONES
void sum_pair(float* to, const float* a, const float* b, float scale,
              Store store, double* lanes, std::int64_t numel) {
  sum_any(to, a, b, scale, store, lanes, numel);
}

ACCORDION_CLONES
void sum_pair(float* to, const std::uint16_t* a, const std::uint16_t* b,
              float scale, Store store, double* lanes, std::int64_t numel) {
  sum_any(to, a, b, scale, store, lanes, numel);
}

ACCORDION_CLONES
void sum_pair(float* to, const float* a, const std::uint16_t* b, float scale,
              Store store, double* lanes, std::int64_t numel) {
  sum_any(to, a, b, scale, store, lanes, numel);
}

ACCORDION_CLONES
void sum_pair(std::uint16_t* to, const std::uint16_t* a, const std::uint16_t* b,
              float scale, std::int64_t numel) {
  sum_all<Store::Plain, false>(to, a, b, scale, nullptr, numel);
}

ACCORDION_CLONES
void sum_pair(std::uint16_t* to, const float* a, const std::uint16_t* b,
              float scale, std::int64_t numel) {
  sum_all<Store::Plain, false>(to, a, b, scale, nullptr, numel);
}

void copy_past_cache(void* to, const void* from, std::int64_t bytes) {
  auto* target = static_cast<std::byte*>(to);
  const auto* source = static_cast<const std::byte*>(from);
  std::int64_t first = 0;
  if (starts_a_line(to)) {
    for (; first + kLineBytes <= bytes; first += kLineBytes) {
      store_line_past_cache(target + first, source + first);
    }
  }
  std::memcpy(target + first, source + first,
              static_cast<std::size_t>(bytes - first));
  finish_past_cache();
}

ACCORDION_CLONES
void fp32_to_bf16_past_cache(std::uint16_t* to, const float* from,
                             std::int64_t numel) {
  convert_by_lines(to, from, numel);
}

ACCORDION_CLONES
void bf16_to_fp32_past_cache(float* to, const std::uint16_t* from,
                             std::int64_t numel) {
  convert_by_lines(to, from, numel);
}

}  // namespace accordion::detail

#undef ACCORDION_CLONES
