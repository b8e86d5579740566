// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "accordion/ops/kernels/vectorize.h"

/// What attention does besides matrix products: softmax, its gradient, and
/// laying out the right-hand operand of a product.
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

/// A tile of attention scores whose queries start at position `first_query` and
/// whose keys start at 0: query i sees keys 0 to first_query + i.
struct Tile {
  std::int64_t first_query;
  std::int64_t queries;
  std::int64_t keys;
  float scale;  ///< of the scores
};

/// weights = exp(scale * scores - max), zero where masked; sums are left out:
/// their inverses go to inverse_sums, log(sum) + max to log_sums.
///
/// Shapes  scores [queries, keys]; weights [queries, stride], zero beyond keys;
///         inverse_sums, log_sums [queries]
void softmax(const Tile& tile, const float* scores, float* weights,
             std::int64_t stride, float* inverse_sums, float* log_sums);
void softmax(const Tile& tile, const float* scores, Bf16* weights,
             std::int64_t stride, float* inverse_sums, float* log_sums);

/// From the transposed scores and the transposed gradient of the weights:
///   weights = exp(scale * scores - log_sums),
///   dscores = scale * weights * (dweights - deltas), zero where masked.
///
/// Shapes  scores, dweights [keys, queries]; weights, dscores [keys, stride],
///         zero beyond queries; log_sums, deltas [queries]
void softmax_backward(const Tile& tile, const float* scores,
                      const float* dweights, const float* log_sums,
                      const float* deltas, float* weights, float* dscores,
                      std::int64_t stride);
void softmax_backward(const Tile& tile, const float* scores,
                      const float* dweights, const float* log_sums,
                      const float* deltas, Bf16* weights, Bf16* dscores,
                      std::int64_t stride);

/// sum of a[i] * b[i].
float dot(const float* a, const float* b, std::int64_t numel);
float dot(const Bf16* a, const Bf16* b, std::int64_t numel);

}  // namespace accordion::kernels
