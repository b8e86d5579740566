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

// Calls rms_norm, for its very bits: the norm of a sum that was kept is
// computed again by it, and another loop might add squares in another order.
template <class T>
ACCORDION_INLINE void add_rows(const T* x, const T* branch, const T* weight,
                               T* sum, T* y, std::int64_t rows,
                               std::int64_t width, float eps) {
  for (std::int64_t row = 0; row < rows;
       ++row, x += width, branch += width, sum += width, y += width) {
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i) {
      store(sum[i], to_float(x[i]) + to_float(branch[i]));
    }
    rms_norm(sum, weight, y, 1, width, eps);
  }
}

// With s = 1 / sqrt(mean(x^2) + eps) and g = dy * weight:
//   dx = s * (g - x * s^2 * mean(g * x)),   dweight = sum over rows dy * x * s
template <bool Adds, class T>
ACCORDION_INLINE void backward_rows(const T* x, const T* weight, const T* dy,
                                    const T* elsewhere, T* dx, float* dweight,
                                    std::int64_t rows, std::int64_t width,
                                    float eps) {
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
      const float of_x =
          inverse * (gradient * to_float(weight[i]) - value * pull);
      store(dx[i], Adds ? of_x + to_float(elsewhere[i]) : of_x);
    }
    elsewhere += Adds ? width : 0;
  }
}

template <class T>
ACCORDION_INLINE void backward(const T* x, const T* weight, const T* dy,
                               const T* elsewhere, T* dx, float* dweight,
                               std::int64_t rows, std::int64_t width,
                               float eps) {
  if (elsewhere != nullptr) {
    backward_rows<true>(x, weight, dy, elsewhere, dx, dweight, rows, width,
                        eps);
  } else {
    backward_rows<false>(x, weight, dy, elsewhere, dx, dweight, rows, width,
                         eps);
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
void add_rms_norm(const float* x, const float* branch, const float* weight,
                  float* sum, float* y, std::int64_t rows, std::int64_t width,
                  float eps) {
  add_rows(x, branch, weight, sum, y, rows, width, eps);
}

ACCORDION_VECTORIZE
void add_rms_norm(const Bf16* x, const Bf16* branch, const Bf16* weight,
                  Bf16* sum, Bf16* y, std::int64_t rows, std::int64_t width,
                  float eps) {
  add_rows(x, branch, weight, sum, y, rows, width, eps);
}

ACCORDION_VECTORIZE
void add_rms_norm(const Fp16* x, const Fp16* branch, const Fp16* weight,
                  Fp16* sum, Fp16* y, std::int64_t rows, std::int64_t width,
                  float eps) {
  add_rows(x, branch, weight, sum, y, rows, width, eps);
}

ACCORDION_VECTORIZE
void rms_norm_backward(const float* x, const float* weight, const float* dy,
                       const float* elsewhere, float* dx, float* dweight,
                       std::int64_t rows, std::int64_t width, float eps) {
  backward(x, weight, dy, elsewhere, dx, dweight, rows, width, eps);
}

ACCORDION_VECTORIZE
void rms_norm_backward(const Bf16* x, const Bf16* weight, const Bf16* dy,
                       const Bf16* elsewhere, Bf16* dx, float* dweight,
                       std::int64_t rows, std::int64_t width, float eps) {
  backward(x, weight, dy, elsewhere, dx, dweight, rows, width, eps);
}

ACCORDION_VECTORIZE
void rms_norm_backward(const Fp16* x, const Fp16* weight, const Fp16* dy,
                       const Fp16* elsewhere, Fp16* dx, float* dweight,
                       std::int64_t rows, std::int64_t width, float eps) {
  backward(x, weight, dy, elsewhere, dx, dweight, rows, width, eps);
}

}  // namespace accordion::kernels
