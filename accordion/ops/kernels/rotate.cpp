// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/kernels/row_kernels.h"

namespace accordion::kernels {
namespace {

template <class T>
ACCORDION_INLINE void rotate_heads(const T* x, const float* cos,
                                   const float* sin, T* y, std::int64_t heads,
                                   std::int64_t half, float direction) {
  for (std::int64_t head = 0; head < heads;
       ++head, x += 2 * half, y += 2 * half) {
#pragma omp simd
    for (std::int64_t i = 0; i < half; ++i) {
      const float a = to_float(x[i]);
      const float b = to_float(x[half + i]);
      const float c = cos[i];
      const float s = sin[i] * direction;
      store(y[i], a * c - b * s);
      store(y[half + i], b * c + a * s);
    }
  }
}

}  // namespace

ACCORDION_VECTORIZE
void rotate(const float* x, const float* cos, const float* sin, float* y,
            std::int64_t heads, std::int64_t half, float direction) {
  rotate_heads(x, cos, sin, y, heads, half, direction);
}

ACCORDION_VECTORIZE
void rotate(const Bf16* x, const float* cos, const float* sin, Bf16* y,
            std::int64_t heads, std::int64_t half, float direction) {
  rotate_heads(x, cos, sin, y, heads, half, direction);
}

ACCORDION_VECTORIZE
void rotate(const Fp16* x, const float* cos, const float* sin, Fp16* y,
            std::int64_t heads, std::int64_t half, float direction) {
  rotate_heads(x, cos, sin, y, heads, half, direction);
}

}  // namespace accordion::kernels
