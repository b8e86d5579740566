// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/kernels/matrix_layout.h"

#include <cstring>

#include "accordion/ops/kernels/transpose_words.h"

namespace accordion::kernels {
namespace {

/// `count` words of a row of fp32, from a column on.
struct LoadFloats {
  MatrixView<float> from;
  ACCORDION_INLINE void operator()(std::int64_t row, std::int64_t column,
                                   std::int64_t count, Words& words) const {
    std::memcpy(&words, from.data + row * from.stride + column, count * 4);
  }
};

/// Words of two neighbouring elements of a row.
struct LoadPairs {
  MatrixView<Bf16> from;
  ACCORDION_INLINE void operator()(std::int64_t row, std::int64_t column,
                                   std::int64_t count, Words& words) const {
    const Bf16* source = from.data + row * from.stride + 2 * column;
    const std::int64_t left = from.columns - 2 * column;  // without a partner
    if (count == kWords && left >= 2 * kWords) {
      std::memcpy(&words, source, sizeof(words));
    } else {
      std::memcpy(&words, source, 2 * std::min(2 * count, left));
    }
  }
};

/// `count` elements as words of which the lower half is the bf16.
ACCORDION_INLINE void load_halves(const Bf16* from, std::int64_t count,
                                  Words& words) {
  using Halves __attribute__((vector_size(16))) = std::uint16_t;
  Halves halves = {};
  std::memcpy(&halves, from, 2 * count);
  words = __builtin_convertvector(halves, Words);
}

// As store() rounds a Bf16.
ACCORDION_INLINE void load_halves(const float* from, std::int64_t count,
                                  Words& words) {
  Words bits = {};
  std::memcpy(&bits, from, 4 * count);
  const Words rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const auto nan = static_cast<Words>((bits & 0x7fffffffU) > 0x7f800000U);
  words = (rounded & ~nan) | (0x7fc0U & nan);
}

/// Words of two elements in bf16, one above the other: of rows 2i and 2i + 1.
template <class T>
struct LoadRowPairs {
  MatrixView<T> from;
  ACCORDION_INLINE void operator()(std::int64_t row, std::int64_t column,
                                   std::int64_t count, Words& words) const {
    const T* source = from.data + 2 * row * from.stride + column;
    Words lower = {};
    load_halves(source, count, words);
    if (2 * row + 1 < from.rows) {
      load_halves(source + from.stride, count, lower);
    }
    words |= lower << 16;
  }
};

/// The transpose of fp32 in fp32.
ACCORDION_INLINE void transpose_floats(MatrixView<float> from, float* to,
                                       std::int64_t to_stride) {
  transpose_words(from.rows, from.columns, LoadFloats{from},
                  {to, from.rows * 4, to_stride * 4});
}

/// The transpose in bf16.
template <class T>
ACCORDION_INLINE void transpose_to_halves(MatrixView<T> from, Bf16* to,
                                          std::int64_t to_stride) {
  transpose_words((from.rows + 1) / 2, from.columns, LoadRowPairs<T>{from},
                  {to, from.rows * 2, to_stride * 2});
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
  transpose_floats(from, to, from.rows);
}

// A pair of rows of from^T, interleaved, is a column of pairs of `from`.
ACCORDION_VECTORIZE
void pack_transposed(MatrixView<Bf16> from, Bf16* to) {
  transpose_words(from.rows, (from.columns + 1) / 2, LoadPairs{from},
                  {to, from.rows * 4, from.rows * 4});
}

ACCORDION_VECTORIZE
void transpose(MatrixView<float> from, float* to, std::int64_t to_stride) {
  transpose_floats(from, to, to_stride);
}

ACCORDION_VECTORIZE
void transpose(MatrixView<Bf16> from, Bf16* to, std::int64_t to_stride) {
  transpose_to_halves(from, to, to_stride);
}

ACCORDION_VECTORIZE
void transpose(MatrixView<float> from, Bf16* to, std::int64_t to_stride) {
  transpose_to_halves(from, to, to_stride);
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
