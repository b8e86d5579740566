// SPDX-License-Identifier: BSD-3-Clause
#include "benchmarks/stream_kernels.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace accordion::benchmarks {

void stream_copy(float* __restrict to, const float* __restrict from,
                 std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; ++i) {
    to[i] = from[i];
  }
}

void stream_add(float* __restrict to, const float* __restrict a,
                const float* __restrict b, std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; ++i) {
    to[i] = a[i] + b[i];
  }
}

void stream_update(float* __restrict a, float* __restrict b,
                   float* __restrict c, const float* __restrict from,
                   std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; ++i) {
    a[i] += from[i];
    b[i] += from[i];
    c[i] += from[i];
  }
}

#if defined(__SSE2__)

void stream_copy_past_cache(float* to, const float* from, std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; i += 4) {
    _mm_stream_ps(to + i, _mm_loadu_ps(from + i));
  }
  _mm_sfence();
}

void stream_add_past_cache(float* to, const float* a, const float* b,
                           std::int64_t numel) {
  for (std::int64_t i = 0; i < numel; i += 4) {
    _mm_stream_ps(to + i, _mm_add_ps(_mm_loadu_ps(a + i), _mm_loadu_ps(b + i)));
  }
  _mm_sfence();
}

#else

void stream_copy_past_cache(float* to, const float* from, std::int64_t numel) {
  stream_copy(to, from, numel);
}

void stream_add_past_cache(float* to, const float* a, const float* b,
                           std::int64_t numel) {
  stream_add(to, a, b, numel);
}

#endif

}  // namespace accordion::benchmarks
