// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/kernels/row_kernels.h"

namespace accordion::kernels {
namespace {

ACCORDION_INLINE float sigmoid(float x) {
  return 1.0F / (1.0F + fast_exp(-x));
}

template <class T>
ACCORDION_INLINE void forward(const T* gate, const T* up, T* y,
                              std::int64_t numel) {
#pragma omp simd
  for (std::int64_t i = 0; i < numel; ++i) {
    const float g = to_float(gate[i]);
    store(y[i], g * sigmoid(g) * to_float(up[i]));
  }
}

// silu(g) = g s with s = sigmoid(g), and silu'(g) = s (1 + g (1 - s)).
template <class T>
ACCORDION_INLINE void backward(const T* gate, const T* up, const T* dy,
                               T* dgate, T* dup, std::int64_t numel) {
#pragma omp simd
  for (std::int64_t i = 0; i < numel; ++i) {
    const float g = to_float(gate[i]);
    const float s = sigmoid(g);
    const float gradient = to_float(dy[i]);
    store(dup[i], gradient * g * s);
    store(dgate[i], gradient * to_float(up[i]) * s * (1.0F + g * (1.0F - s)));
  }
}

}  // namespace

ACCORDION_VECTORIZE
void swiglu(const float* gate, const float* up, float* y, std::int64_t numel) {
  forward(gate, up, y, numel);
}

ACCORDION_VECTORIZE
void swiglu(const Bf16* gate, const Bf16* up, Bf16* y, std::int64_t numel) {
  forward(gate, up, y, numel);
}

ACCORDION_VECTORIZE
void swiglu(const Fp16* gate, const Fp16* up, Fp16* y, std::int64_t numel) {
  forward(gate, up, y, numel);
}

ACCORDION_VECTORIZE
void swiglu_backward(const float* gate, const float* up, const float* dy,
                     float* dgate, float* dup, std::int64_t numel) {
  backward(gate, up, dy, dgate, dup, numel);
}

ACCORDION_VECTORIZE
void swiglu_backward(const Bf16* gate, const Bf16* up, const Bf16* dy,
                     Bf16* dgate, Bf16* dup, std::int64_t numel) {
  backward(gate, up, dy, dgate, dup, numel);
}

ACCORDION_VECTORIZE
void swiglu_backward(const Fp16* gate, const Fp16* up, const Fp16* dy,
                     Fp16* dgate, Fp16* dup, std::int64_t numel) {
  backward(gate, up, dy, dgate, dup, numel);
}

}  // namespace accordion::kernels
