// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>

#include "accordion/ops/kernels/attention_kernels.h"

namespace accordion::kernels {
namespace {

/// Rows are taken in steps that store one cache line, a vector of AVX-512, and
/// what is not seen of a step is masked: element by element, what is left of a
/// row would take as long as half of it.
template <class T>
inline constexpr std::int32_t kStep = 64 / std::int32_t{sizeof(T)};

/// Elements [begin, end) of a row, those that are seen.
struct Seen {
  std::int32_t begin;
  std::int32_t end;
  [[nodiscard]] ACCORDION_INLINE bool has(std::int32_t i) const {
    return i >= begin && i < end;
  }
};

/// Calls `body` with the first element of each step that has some that are
/// seen, and with the step's length: a constant but in the last of a row whose
/// length is no multiple. What lies before and behind is left to `clear`, as
/// [first, last).
template <std::int32_t kLength, class Body, class Clear>
ACCORDION_INLINE void for_each_step(const Seen& seen, std::int64_t row,
                                    std::int64_t stride, const Body& body,
                                    const Clear& clear) {
  const auto numel = static_cast<std::int32_t>(row);
  std::int32_t i = seen.begin / kLength * kLength;
  clear(0, i);
  for (; i < seen.end && i + kLength <= numel; i += kLength) {
    body(i, std::integral_constant<std::int32_t, kLength>{});
  }
  if (i < seen.end) {
    body(i, numel - i);
    i = numel;
  }
  clear(i, static_cast<std::int32_t>(stride));
}

constexpr auto kNothing = [](std::int32_t /*first*/, std::int32_t /*last*/) {};

template <class T>
ACCORDION_INLINE void softmax_rows(const Tile& tile, const float* scores,
                                   T* weights, std::int64_t stride,
                                   float* inverse_sums, float* log_sums) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  for (std::int64_t row = 0; row < tile.queries;
       ++row, scores += tile.keys, weights += stride) {
    const std::int64_t position = tile.first_query + row + 1;
    const std::int64_t end = std::min(position, tile.keys);
    const Seen seen{static_cast<std::int32_t>(std::clamp<std::int64_t>(
                        position - tile.window, 0, end)),
                    static_cast<std::int32_t>(end)};
    float maxima[kStep<T>];
    float sums[kStep<T>] = {};
    std::fill(maxima, maxima + kStep<T>, kNone);
    for_each_step<kStep<T>>(
        seen, tile.keys, tile.keys,
        [&](std::int32_t first, auto count) {
#pragma omp simd
          for (std::int32_t i = 0; i < count; ++i) {
            const float score = seen.has(first + i) ? scores[first + i] : kNone;
            maxima[i] = score > maxima[i] ? score : maxima[i];
          }
        },
        kNothing);
    const float maximum = *std::max_element(maxima, maxima + kStep<T>);
    for_each_step<kStep<T>>(
        seen, tile.keys, stride,
        [&](std::int32_t first, auto count) {
#pragma omp simd
          for (std::int32_t i = 0; i < count; ++i) {
            const float of_seen =
                fast_exp(tile.scale * (scores[first + i] - maximum));
            const float weight = seen.has(first + i) ? of_seen : 0.0F;
            sums[i] += weight;
            store(weights[first + i], weight);
          }
        },
        [&](std::int32_t first, std::int32_t last) {
          std::fill(weights + first, weights + last, T{});
        });
    const float sum = std::accumulate(sums, sums + kStep<T>, 0.0F);
    inverse_sums[row] = 1.0F / sum;
    log_sums[row] = std::log(sum) + tile.scale * maximum;
  }
}

template <class T>
ACCORDION_INLINE void backward_rows(const Tile& tile, const float* scores,
                                    const float* dweights,
                                    const float* log_sums, const float* deltas,
                                    T* weights, T* dscores,
                                    std::int64_t stride) {
  for (std::int64_t key = 0; key < tile.keys; ++key) {
    // It is seen by the `window` queries from its position on.
    const std::int64_t begin =
        std::clamp<std::int64_t>(key - tile.first_query, 0, tile.queries);
    const std::int64_t end = std::clamp<std::int64_t>(
        key - tile.first_query + tile.window, begin, tile.queries);
    const Seen seen{static_cast<std::int32_t>(begin),
                    static_cast<std::int32_t>(end)};
    for_each_step<kStep<T>>(
        seen, tile.queries, stride,
        [&](std::int32_t first, auto count) {
#pragma omp simd
          for (std::int32_t i = 0; i < count; ++i) {
            const std::int32_t at = first + i;
            const float of_seen =
                fast_exp(tile.scale * scores[at] - log_sums[at]);
            const float weight = seen.has(at) ? of_seen : 0.0F;
            const float dscore =
                tile.scale * weight * (dweights[at] - deltas[at]);
            store(weights[at], weight);
            store(dscores[at], seen.has(at) ? dscore : 0.0F);
          }
        },
        [&](std::int32_t first, std::int32_t last) {
          std::fill(weights + first, weights + last, T{});
          std::fill(dscores + first, dscores + last, T{});
        });
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
