// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "accordion/ops/kernels/vectorize.h"

/// Laying out the operands of matrix products.
///
/// // [Note: paired rows]
/// Processors multiply bf16 two rows at a time: the right-hand matrix of a
/// product [k, n] lies as [k / 2, n, 2], rows 2i and 2i + 1 interleaved. With
/// an odd k the missing row is zeros. In fp32 the matrix lies as it is.
/// padded(k) is the number of rows with that one.
namespace accordion::kernels {

constexpr std::int64_t padded(const float* /*type*/, std::int64_t k) {
  return k;
}
constexpr std::int64_t padded(const Bf16* /*type*/, std::int64_t k) {
  return (k + 1) / 2 * 2;
}

/// A matrix in memory that is not ours: element (i, j) at i * stride + j.
template <class T>
struct MatrixView {
  const T* data;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t stride;
};

/// Right-hand operand `from` [k, n] -> to [padded(k), n], rows in pairs.
void pack(MatrixView<Bf16> from, Bf16* to);

/// Right-hand operand from^T: from [n, k] -> to [padded(k), n], rows in pairs.
void pack_transposed(MatrixView<float> from, float* to);
void pack_transposed(MatrixView<Bf16> from, Bf16* to);

/// to = from^T: from [rows, columns] -> to [columns, to_stride], of which the
/// first `rows` elements of each row are written.
void transpose(MatrixView<float> from, float* to, std::int64_t to_stride);
void transpose(MatrixView<Bf16> from, Bf16* to, std::int64_t to_stride);
void transpose(MatrixView<float> from, Bf16* to, std::int64_t to_stride);

/// to[i, j] = from[i, j] * (factors == nullptr ? 1 : factors[i]).
void scale_rows(MatrixView<float> from, const float* factors, float* to,
                std::int64_t to_stride);
void scale_rows(MatrixView<float> from, const float* factors, Bf16* to,
                std::int64_t to_stride);

}  // namespace accordion::kernels
