// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/kernels/layer_norm.h"

#include <cmath>

namespace accordion::kernels {
namespace {

template <class T>
ACCORDION_INLINE float mean_of(const T* x, std::int64_t width) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < width; ++i) {
    sum += to_float(x[i]);
  }
  return sum / static_cast<float>(width);
}

// The variance from distances to the mean, in a pass of its own over a row that
// lies in the first cache: a difference of mean squares would cancel.
template <bool HasBias, class T>
ACCORDION_INLINE void norm_row(const T* x, const LayerNormForward<T>& of,
                               T* y) {
  const float mean = mean_of(x, of.width);
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (std::int64_t i = 0; i < of.width; ++i) {
    const float distance = to_float(x[i]) - mean;
    squares += distance * distance;
  }
  const float inverse =
      1.0F / std::sqrt(squares / static_cast<float>(of.width) + of.eps);
#pragma omp simd
  for (std::int64_t i = 0; i < of.width; ++i) {
    const float normed =
        (to_float(x[i]) - mean) * inverse * to_float(of.weight[i]);
    store(y[i], HasBias ? normed + to_float(of.bias[i]) : normed);
  }
}

// The sum of a branch goes through the same loops as a row that stands alone,
// so that a norm that is computed again has the same bits.
template <class T>
ACCORDION_INLINE void forward_rows(const LayerNormForward<T>& of) {
  for (std::int64_t row = 0; row < of.rows; ++row) {
    const std::int64_t first = row * of.width;
    const T* x = of.x + first;
    if (of.branch != nullptr) {
      const T* branch = of.branch + first;
      T* sum = of.sum + first;
#pragma omp simd
      for (std::int64_t i = 0; i < of.width; ++i) {
        store(sum[i], to_float(x[i]) + to_float(branch[i]));
      }
      x = sum;
    }
    if (of.bias != nullptr) {
      norm_row<true>(x, of, of.y + first);
    } else {
      norm_row<false>(x, of, of.y + first);
    }
  }
}

// With s = 1 / sqrt(variance + eps), n = (x - mean) s and g = dy * weight:
//   dx = s (g - mean(g) - n mean(g n)),
//   dweight = sum over rows dy n,   dbias = sum over rows dy
template <bool Adds, bool HasBias, class T>
ACCORDION_INLINE void backward_rows(const LayerNormBackward<T>& of) {
  // Members of `of` might, for all that the compiler knows, change with every
  // store.
  const std::int64_t width = of.width;
  const T* weight = of.weight;
  const float count = static_cast<float>(width);
  float* dweight = of.dweight;
  float* dbias = of.dbias;
  for (std::int64_t row = 0; row < of.rows; ++row) {
    const std::int64_t first = row * width;
    const T* x = of.x + first;
    const T* dy = of.dy + first;
    const T* elsewhere = of.elsewhere + (Adds ? first : 0);
    T* dx = of.dx + first;
    const float mean = mean_of(x, width);
    float squares = 0;
    float gradients = 0;
    float products = 0;
#pragma omp simd reduction(+ : squares, gradients, products)
    for (std::int64_t i = 0; i < width; ++i) {
      const float distance = to_float(x[i]) - mean;
      const float gradient = to_float(dy[i]) * to_float(weight[i]);
      squares += distance * distance;
      gradients += gradient;
      products += gradient * distance;
    }
    const float inverse = 1.0F / std::sqrt(squares / count + of.eps);
    const float shift = gradients / count;
    const float pull = inverse * products / count;
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i) {
      const float normed = (to_float(x[i]) - mean) * inverse;
      const float gradient = to_float(dy[i]);
      dweight[i] += gradient * normed;
      if (HasBias) {
        dbias[i] += gradient;
      }
      const float of_x =
          inverse * (gradient * to_float(weight[i]) - shift - normed * pull);
      store(dx[i], Adds ? of_x + to_float(elsewhere[i]) : of_x);
    }
  }
}

template <class T>
ACCORDION_INLINE void backward(const LayerNormBackward<T>& of) {
  const bool adds = of.elsewhere != nullptr;
  const bool has_bias = of.dbias != nullptr;
  if (adds && has_bias) {
    backward_rows<true, true>(of);
  } else if (adds) {
    backward_rows<true, false>(of);
  } else if (has_bias) {
    backward_rows<false, true>(of);
  } else {
    backward_rows<false, false>(of);
  }
}

}  // namespace

ACCORDION_VECTORIZE
void layer_norm(const LayerNormForward<float>& of) {
  forward_rows(of);
}

ACCORDION_VECTORIZE
void layer_norm(const LayerNormForward<Bf16>& of) {
  forward_rows(of);
}

ACCORDION_VECTORIZE
void layer_norm(const LayerNormForward<Fp16>& of) {
  forward_rows(of);
}

ACCORDION_VECTORIZE
void layer_norm_backward(const LayerNormBackward<float>& of) {
  backward(of);
}

ACCORDION_VECTORIZE
void layer_norm_backward(const LayerNormBackward<Bf16>& of) {
  backward(of);
}

ACCORDION_VECTORIZE
void layer_norm_backward(const LayerNormBackward<Fp16>& of) {
  backward(of);
}

}  // namespace accordion::kernels
