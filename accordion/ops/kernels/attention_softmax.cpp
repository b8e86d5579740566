// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <limits>

#include "accordion/ops/kernels/attention_kernels.h"

namespace accordion::kernels {
namespace {

template <class T>
ACCORDION_INLINE void softmax_rows(const Tile& tile, const float* scores,
                                   T* weights, std::int64_t stride,
                                   float* inverse_sums, float* log_sums) {
  for (std::int64_t i = 0; i < tile.queries;
       ++i, scores += tile.keys, weights += stride) {
    const std::int64_t seen = tile.first_query + i + 1;
    const std::int64_t end = std::min(seen, tile.keys);
    const std::int64_t begin =
        std::clamp<std::int64_t>(seen - tile.window, 0, end);
    float maximum = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : maximum)
    for (std::int64_t j = begin; j < end; ++j) {
      maximum = scores[j] > maximum ? scores[j] : maximum;
    }
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t j = begin; j < end; ++j) {
      const float weight = fast_exp(tile.scale * (scores[j] - maximum));
      sum += weight;
      store(weights[j], weight);
    }
    std::fill(weights, weights + begin, T{});
    std::fill(weights + end, weights + stride, T{});
    inverse_sums[i] = 1.0F / sum;
    log_sums[i] = std::log(sum) + tile.scale * maximum;
  }
}

template <class T>
ACCORDION_INLINE void backward_rows(const Tile& tile, const float* scores,
                                    const float* dweights,
                                    const float* log_sums, const float* deltas,
                                    T* weights, T* dscores,
                                    std::int64_t stride) {
  for (std::int64_t j = 0; j < tile.keys; ++j) {
    // Key j is seen by the `window` queries from position j on.
    const std::int64_t first =
        std::clamp<std::int64_t>(j - tile.first_query, 0, tile.queries);
    const std::int64_t end = std::clamp<std::int64_t>(
        j - tile.first_query + tile.window, first, tile.queries);
    std::fill(weights, weights + first, T{});
    std::fill(dscores, dscores + first, T{});
#pragma omp simd
    for (std::int64_t i = first; i < end; ++i) {
      const float weight = fast_exp(tile.scale * scores[i] - log_sums[i]);
      store(weights[i], weight);
      store(dscores[i], tile.scale * weight * (dweights[i] - deltas[i]));
    }
    std::fill(weights + end, weights + stride, T{});
    std::fill(dscores + end, dscores + stride, T{});
    scores += tile.queries;
    dweights += tile.queries;
    weights += stride;
    dscores += stride;
  }
}

template <class T>
ACCORDION_INLINE float sum_of_products(const T* a, const T* b,
                                       std::int64_t numel) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < numel; ++i) {
    sum += to_float(a[i]) * to_float(b[i]);
  }
  return sum;
}

}  // namespace

ACCORDION_VECTORIZE
void softmax(const Tile& tile, const float* scores, float* weights,
             std::int64_t stride, float* inverse_sums, float* log_sums) {
  softmax_rows(tile, scores, weights, stride, inverse_sums, log_sums);
}

ACCORDION_VECTORIZE
void softmax(const Tile& tile, const float* scores, Bf16* weights,
             std::int64_t stride, float* inverse_sums, float* log_sums) {
  softmax_rows(tile, scores, weights, stride, inverse_sums, log_sums);
}

ACCORDION_VECTORIZE
void softmax_backward(const Tile& tile, const float* scores,
                      const float* dweights, const float* log_sums,
                      const float* deltas, float* weights, float* dscores,
                      std::int64_t stride) {
  backward_rows(tile, scores, dweights, log_sums, deltas, weights, dscores,
                stride);
}

ACCORDION_VECTORIZE
void softmax_backward(const Tile& tile, const float* scores,
                      const float* dweights, const float* log_sums,
                      const float* deltas, Bf16* weights, Bf16* dscores,
                      std::int64_t stride) {
  backward_rows(tile, scores, dweights, log_sums, deltas, weights, dscores,
                stride);
}

ACCORDION_VECTORIZE
float dot(const float* a, const float* b, std::int64_t numel) {
  return sum_of_products(a, b, numel);
}

ACCORDION_VECTORIZE
float dot(const Bf16* a, const Bf16* b, std::int64_t numel) {
  return sum_of_products(a, b, numel);
}

}  // namespace accordion::kernels
