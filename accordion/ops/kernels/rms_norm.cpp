// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>

#include "accordion/ops/kernels/row_kernels.h"

namespace accordion::kernels {
namespace {

template <class T>
ACCORDION_INLINE void forward_rows(const T* x, const T* weight, T* y,
                                   std::int64_t rows, std::int64_t width,
                                   float eps) {
  for (std::int64_t row = 0; row < rows; ++row, x += width, y += width) {
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (std::int64_t i = 0; i < width; ++i) {
      const float value = to_float(x[i]);
      squares += value * value;
    }
    const float inverse =
        1.0F / std::sqrt(squares / static_cast<float>(width) + eps);
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i) {
      store(y[i], to_float(x[i]) * inverse * to_float(weight[i]));
    }
  }
}

// With s = 1 / sqrt(mean(x^2) + eps) and g = dy * weight:
//   dx = s * (g - x * s^2 * mean(g * x)),   dweight = sum over rows dy * x * s
template <class T>
ACCORDION_INLINE void backward_rows(const T* x, const T* weight, const T* dy,
                                    T* dx, float* dweight, std::int64_t rows,
                                    std::int64_t width, float eps) {
  const float count = static_cast<float>(width);
  for (std::int64_t row = 0; row < rows;
       ++row, x += width, dy += width, dx += width) {
    float squares = 0;
    float products = 0;
#pragma omp simd reduction(+ : squares, products)
    for (std::int64_t i = 0; i < width; ++i) {
      const float value = to_float(x[i]);
      squares += value * value;
      products += to_float(dy[i]) * to_float(weight[i]) * value;
    }
    const float inverse = 1.0F / std::sqrt(squares / count + eps);
    const float pull = inverse * inverse * products / count;
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i) {
      const float value = to_float(x[i]);
      const float gradient = to_float(dy[i]);
      dweight[i] += gradient * value * inverse;
      store(dx[i], inverse * (gradient * to_float(weight[i]) - value * pull));
    }
  }
}

}  // namespace

ACCORDION_VECTORIZE
void rms_norm(const float* x, const float* weight, float* y, std::int64_t rows,
              std::int64_t width, float eps) {
  forward_rows(x, weight, y, rows, width, eps);
}

ACCORDION_VECTORIZE
void rms_norm(const Bf16* x, const Bf16* weight, Bf16* y, std::int64_t rows,
              std::int64_t width, float eps) {
  forward_rows(x, weight, y, rows, width, eps);
}

ACCORDION_VECTORIZE
void rms_norm(const Fp16* x, const Fp16* weight, Fp16* y, std::int64_t rows,
              std::int64_t width, float eps) {
  forward_rows(x, weight, y, rows, width, eps);
}

ACCORDION_VECTORIZE
void rms_norm_backward(const float* x, const float* weight, const float* dy,
                       float* dx, float* dweight, std::int64_t rows,
                       std::int64_t width, float eps) {
  backward_rows(x, weight, dy, dx, dweight, rows, width, eps);
}

ACCORDION_VECTORIZE
void rms_norm_backward(const Bf16* x, const Bf16* weight, const Bf16* dy,
                       Bf16* dx, float* dweight, std::int64_t rows,
                       std::int64_t width, float eps) {
  backward_rows(x, weight, dy, dx, dweight, rows, width, eps);
}

ACCORDION_VECTORIZE
void rms_norm_backward(const Fp16* x, const Fp16* weight, const Fp16* dy,
                       Fp16* dx, float* dweight, std::int64_t rows,
                       std::int64_t width, float eps) {
  backward_rows(x, weight, dy, dx, dweight, rows, width, eps);
}

}  // namespace accordion::kernels
