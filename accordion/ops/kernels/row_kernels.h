// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "accordion/ops/kernels/vectorize.h"

/// The loops inside the fused operators: plain C++ that the compiler
/// vectorises, on raw rows, without tensors and without threads. Callers split
/// rows among threads.
///
/// Rows lie one after the other. All arithmetic is in fp32, whatever the
/// element type; T is float, Bf16 or Fp16.
namespace accordion::kernels {

/// y = x / sqrt(mean(x^2) + eps) * weight for each row.
///
/// Shapes  x, y [rows, width]; weight [width]
void rms_norm(const float* x, const float* weight, float* y, std::int64_t rows,
              std::int64_t width, float eps);
void rms_norm(const Bf16* x, const Bf16* weight, Bf16* y, std::int64_t rows,
              std::int64_t width, float eps);
void rms_norm(const Fp16* x, const Fp16* weight, Fp16* y, std::int64_t rows,
              std::int64_t width, float eps);

/// sum = x + branch, and y the same of the sum as it is written.
///
/// Shapes  x, branch, sum, y [rows, width]; weight [width]
void add_rms_norm(const float* x, const float* branch, const float* weight,
                  float* sum, float* y, std::int64_t rows, std::int64_t width,
                  float eps);
void add_rms_norm(const Bf16* x, const Bf16* branch, const Bf16* weight,
                  Bf16* sum, Bf16* y, std::int64_t rows, std::int64_t width,
                  float eps);
void add_rms_norm(const Fp16* x, const Fp16* branch, const Fp16* weight,
                  Fp16* sum, Fp16* y, std::int64_t rows, std::int64_t width,
                  float eps);

/// Gradients of rms_norm; the norm of each row is computed again from x.
/// `elsewhere`, unless null, is another gradient of x, which dx includes.
///
/// Shapes  x, dy, elsewhere, dx [rows, width]; weight, dweight [width]
/// dweight is added to, in fp32.
void rms_norm_backward(const float* x, const float* weight, const float* dy,
                       const float* elsewhere, float* dx, float* dweight,
                       std::int64_t rows, std::int64_t width, float eps);
void rms_norm_backward(const Bf16* x, const Bf16* weight, const Bf16* dy,
                       const Bf16* elsewhere, Bf16* dx, float* dweight,
                       std::int64_t rows, std::int64_t width, float eps);
void rms_norm_backward(const Fp16* x, const Fp16* weight, const Fp16* dy,
                       const Fp16* elsewhere, Fp16* dx, float* dweight,
                       std::int64_t rows, std::int64_t width, float eps);

/// y = silu(gate) * up.
void swiglu(const float* gate, const float* up, float* y, std::int64_t numel);
void swiglu(const Bf16* gate, const Bf16* up, Bf16* y, std::int64_t numel);
void swiglu(const Fp16* gate, const Fp16* up, Fp16* y, std::int64_t numel);

void swiglu_backward(const float* gate, const float* up, const float* dy,
                     float* dgate, float* dup, std::int64_t numel);
void swiglu_backward(const Bf16* gate, const Bf16* up, const Bf16* dy,
                     Bf16* dgate, Bf16* dup, std::int64_t numel);
void swiglu_backward(const Fp16* gate, const Fp16* up, const Fp16* dy,
                     Fp16* dgate, Fp16* dup, std::int64_t numel);

/// Rotates the heads of one position: (a, b) becomes
/// (a cos - b sin, b cos + a sin), a and b being the halves of a head.
/// `direction` -1 rotates back, which is the gradient.
///
/// Shapes  x, y [heads, 2 * half]; cos, sin [half]
void rotate(const float* x, const float* cos, const float* sin, float* y,
            std::int64_t heads, std::int64_t half, float direction);
void rotate(const Bf16* x, const float* cos, const float* sin, Bf16* y,
            std::int64_t heads, std::int64_t half, float direction);
void rotate(const Fp16* x, const float* cos, const float* sin, Fp16* y,
            std::int64_t heads, std::int64_t half, float direction);

/// What cross_entropy finds in one row.
struct RowLoss {
  float loss = 0;        ///< log(sum(exp(logits))) - logits[target]
  bool correct = false;  ///< the target is the first of the largest logits
};

/// Loss of one row and, unless `gradient` is null, its gradient times `scale`.
/// `gradient` may be `logits`.
RowLoss cross_entropy(const float* logits, std::int64_t target, float* gradient,
                      float scale, std::int64_t classes);
RowLoss cross_entropy(const Bf16* logits, std::int64_t target, Bf16* gradient,
                      float scale, std::int64_t classes);
RowLoss cross_entropy(const Fp16* logits, std::int64_t target, Fp16* gradient,
                      float scale, std::int64_t classes);

}  // namespace accordion::kernels
