// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "accordion/ops/kernels/vectorize.h"

/// What attention does between matrix products: softmax and its gradient.
namespace accordion::kernels {

/// A tile of attention scores whose queries start `first_query` positions after
/// its keys: query i sees the last `window` of keys 0 to first_query + i.
struct Tile {
  std::int64_t first_query;
  std::int64_t queries;
  std::int64_t keys;
  std::int64_t window;  ///< at least 1
  float scale;          ///< of the scores
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
