// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "accordion/ops/kernels/vectorize.h"

/// The loops inside layer_norm, like those of row_kernels.h: on raw rows, in
/// one thread, with arithmetic in fp32 whatever the element type.
namespace accordion::kernels {

/// y = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias for each row,
/// the variance being that of the row itself, not an estimate from a sample.
/// Where `branch` is given, of x + branch as it is written to `sum`.
template <class T>
struct LayerNormForward {
  const T* x;       ///< [rows, width]
  const T* branch;  ///< [rows, width], or null
  const T* weight;  ///< [width]
  const T* bias;    ///< [width], or null
  T* sum;           ///< [rows, width]; not touched where branch is null
  T* y;             ///< [rows, width]
  std::int64_t rows;
  std::int64_t width;
  float eps;
};
void layer_norm(const LayerNormForward<float>& of);
void layer_norm(const LayerNormForward<Bf16>& of);
void layer_norm(const LayerNormForward<Fp16>& of);

/// Gradients; mean and deviation of each row are computed again from x.
template <class T>
struct LayerNormBackward {
  const T* x;          ///< [rows, width]
  const T* weight;     ///< [width]
  const T* dy;         ///< [rows, width]
  const T* elsewhere;  ///< [rows, width], or null: another gradient of x, which
                       ///< dx includes
  T* dx;               ///< [rows, width]
  float* dweight;      ///< [width]; added to
  float* dbias;        ///< [width], or null; added to
  std::int64_t rows;
  std::int64_t width;
  float eps;
};
void layer_norm_backward(const LayerNormBackward<float>& of);
void layer_norm_backward(const LayerNormBackward<Bf16>& of);
void layer_norm_backward(const LayerNormBackward<Fp16>& of);

}  // namespace accordion::kernels
