// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstring>

#include "accordion/ops/kernels/attention_kernels.h"

namespace accordion::kernels {
namespace {

/// Rows and columns of a tile that is transposed within the first cache.
constexpr std::int64_t kBlock = 16;

/// to[j, i] = convert(from[i, j]), tile by tile.
template <class From, class To, class Convert>
ACCORDION_INLINE void transpose_with(MatrixView<From> from, To* to,
                                     std::int64_t to_stride, Convert convert) {
  for (std::int64_t row = 0; row < from.rows; row += kBlock) {
    const std::int64_t row_end = std::min(row + kBlock, from.rows);
    for (std::int64_t column = 0; column < from.columns; ++column) {
      const From* source = from.data + row * from.stride + column;
      To* target = to + column * to_stride;
      for (std::int64_t i = row; i < row_end; ++i, source += from.stride) {
        target[i] = convert(*source);
      }
    }
  }
}

template <class T>
ACCORDION_INLINE void scale_into(MatrixView<float> from, const float* factors,
                                 T* to, std::int64_t to_stride) {
  for (std::int64_t i = 0; i < from.rows; ++i) {
    const float factor = factors == nullptr ? 1.0F : factors[i];
    const float* source = from.data + i * from.stride;
    T* target = to + i * to_stride;
#pragma omp simd
    for (std::int64_t j = 0; j < from.columns; ++j) {
      store(target[j], source[j] * factor);
    }
  }
}

/// A pair of elements as one word: moving words vectorises, moving pairs of
/// halves does not.
ACCORDION_INLINE void store_pair(Bf16* to, Bf16 first, Bf16 second) {
  const std::uint32_t word =
      first.bits | static_cast<std::uint32_t>(second.bits) << 16;
  std::memcpy(to, &word, sizeof(word));
}

ACCORDION_INLINE void copy_pair(Bf16* to, const Bf16* from) {
  std::uint32_t word;
  std::memcpy(&word, from, sizeof(word));
  std::memcpy(to, &word, sizeof(word));
}

}  // namespace

ACCORDION_VECTORIZE
void pack(MatrixView<Bf16> from, Bf16* to) {
  for (std::int64_t i = 0; i + 1 < from.rows; i += 2) {
    const Bf16* upper = from.data + i * from.stride;
    const Bf16* lower = upper + from.stride;
    Bf16* target = to + i * from.columns;
#pragma omp simd
    for (std::int64_t j = 0; j < from.columns; ++j) {
      store_pair(target + 2 * j, upper[j], lower[j]);
    }
  }
  if (from.rows % 2 == 1) {
    const Bf16* last = from.data + (from.rows - 1) * from.stride;
    Bf16* target = to + (from.rows - 1) * from.columns;
    for (std::int64_t j = 0; j < from.columns; ++j) {
      store_pair(target + 2 * j, last[j], Bf16{});
    }
  }
}

ACCORDION_VECTORIZE
void pack_transposed(MatrixView<float> from, float* to) {
  transpose_with(from, to, from.rows, [](float value) { return value; });
}

// A pair of rows of from^T, interleaved, is a column of pairs of `from`.
ACCORDION_VECTORIZE
void pack_transposed(MatrixView<Bf16> from, Bf16* to) {
  for (std::int64_t row = 0; row < from.rows; row += kBlock) {
    const std::int64_t row_end = std::min(row + kBlock, from.rows);
    std::int64_t column = 0;
    for (; column + 1 < from.columns; column += 2) {
      Bf16* target = to + column * from.rows;
      for (std::int64_t i = row; i < row_end; ++i) {
        copy_pair(target + 2 * i, from.data + i * from.stride + column);
      }
    }
    if (column < from.columns) {
      Bf16* target = to + column * from.rows;
      for (std::int64_t i = row; i < row_end; ++i) {
        store_pair(target + 2 * i, from.data[i * from.stride + column], Bf16{});
      }
    }
  }
}

ACCORDION_VECTORIZE
void transpose(MatrixView<float> from, float* to, std::int64_t to_stride) {
  transpose_with(from, to, to_stride, [](float value) { return value; });
}

ACCORDION_VECTORIZE
void transpose(MatrixView<Bf16> from, Bf16* to, std::int64_t to_stride) {
  transpose_with(from, to, to_stride, [](Bf16 value) { return value; });
}

ACCORDION_VECTORIZE
void transpose(MatrixView<float> from, Bf16* to, std::int64_t to_stride) {
  transpose_with(from, to, to_stride, [](float value) {
    Bf16 result;
    store(result, value);
    return result;
  });
}

ACCORDION_VECTORIZE
void scale_rows(MatrixView<float> from, const float* factors, float* to,
                std::int64_t to_stride) {
  scale_into(from, factors, to, to_stride);
}

ACCORDION_VECTORIZE
void scale_rows(MatrixView<float> from, const float* factors, Bf16* to,
                std::int64_t to_stride) {
  scale_into(from, factors, to, to_stride);
}

}  // namespace accordion::kernels
