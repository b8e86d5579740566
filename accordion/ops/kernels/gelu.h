// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "accordion/ops/kernels/vectorize.h"

/// The loops inside gelu, like those of row_kernels.h: on raw rows, in one
/// thread, with arithmetic in fp32 whatever the element type.
namespace accordion::kernels {

enum class GeluForm : std::uint8_t {
  Exact,  ///< x times the normal distribution up to x
  Tanh,   ///< that approximated by 1/2 (1 + tanh(sqrt(2 / pi) (x + 0.044715
          ///< x^3)))
};

/// y = gelu(x + bias), or gelu(x) where bias is null.
template <class T>
struct GeluForward {
  const T* x;     ///< [rows, width]
  const T* bias;  ///< [width], or null
  T* y;           ///< [rows, width]
  std::int64_t rows;
  std::int64_t width;
};
void gelu(GeluForm form, const GeluForward<float>& of);
void gelu(GeluForm form, const GeluForward<Bf16>& of);
void gelu(GeluForm form, const GeluForward<Fp16>& of);

template <class T>
struct GeluBackward {
  const T* x;     ///< [rows, width]
  const T* bias;  ///< [width], or null
  const T* dy;    ///< [rows, width]
  T* dx;          ///< [rows, width]
  float* dbias;   ///< [width], added to; not touched where bias is null
  std::int64_t rows;
  std::int64_t width;
};
void gelu_backward(GeluForm form, const GeluBackward<float>& of);
void gelu_backward(GeluForm form, const GeluBackward<Bf16>& of);
void gelu_backward(GeluForm form, const GeluBackward<Fp16>& of);

}  // namespace accordion::kernels
