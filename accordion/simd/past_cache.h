// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/// Stores that leave the caches alone, for results that are larger than they
/// are: the lines stored to are neither read first nor kept. In plain C++ where
/// the processor is another.
namespace accordion::simd {

inline constexpr std::int64_t kLineBytes = 64;

[[nodiscard]] inline bool starts_a_line(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % kLineBytes == 0;
}

/// Stores one whole line; it starts at `to`.
[[gnu::always_inline]] inline void store_line_past_cache(void* to,
                                                         const void* from) {
#if defined(__SSE2__)
  for (int i = 0; i < 4; ++i) {
    _mm_stream_si128(static_cast<__m128i*>(to) + i,
                     _mm_loadu_si128(static_cast<const __m128i*>(from) + i));
  }
#else
  std::memcpy(to, from, kLineBytes);
#endif
}

/// Orders these stores before what is published afterwards.
[[gnu::always_inline]] inline void finish_past_cache() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

/// Asks for what a loop reads after the next `kNumel` elements at `from`; its
/// end may be passed. The processor does so too, but less while stores past the
/// cache occupy what it asks with: a pass over memory takes a fifth to a
/// quarter less time.
template <std::int64_t kNumel, class T>
[[gnu::always_inline]] inline void prefetch_ahead(const T* from) {
  constexpr std::int64_t kAhead = 1024;  // bytes
  for (std::int64_t line = 0; line < kNumel * std::int64_t{sizeof(T)};
       line += kLineBytes) {
    __builtin_prefetch(reinterpret_cast<const char*>(from) + kAhead + line);
  }
}

}  // namespace accordion::simd
