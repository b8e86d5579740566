// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "accordion/ops/kernels/vectorize.h"

namespace accordion::kernels {

/// Eight words of 32 bits, in a register where the processor has such.
using Words __attribute__((vector_size(32))) = std::uint32_t;
inline constexpr std::int64_t kWords = 8;

/// Rows become columns.
ACCORDION_INLINE void transpose_block(Words (&rows)[kWords]) {
  Words pairs[kWords];
  Words fours[kWords];
  for (int i = 0; i < 8; i += 2) {
    pairs[i] =
        __builtin_shufflevector(rows[i], rows[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    pairs[i + 1] = __builtin_shufflevector(rows[i], rows[i + 1], 2, 10, 3, 11,
                                           6, 14, 7, 15);
  }
  for (int i = 0; i < 8; i += 4) {
    for (int j = 0; j < 2; ++j) {
      const Words& low = pairs[i + j];
      const Words& high = pairs[i + j + 2];
      fours[i + 2 * j] =
          __builtin_shufflevector(low, high, 0, 1, 8, 9, 4, 5, 12, 13);
      fours[i + 2 * j + 1] =
          __builtin_shufflevector(low, high, 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  for (int i = 0; i < 4; ++i) {
    rows[i] = __builtin_shufflevector(fours[i], fours[i + 4], 0, 1, 2, 3, 8, 9,
                                      10, 11);
    rows[i + 4] = __builtin_shufflevector(fours[i], fours[i + 4], 4, 5, 6, 7,
                                          12, 13, 14, 15);
  }
}

/// What transpose_words writes: rows `stride` bytes apart, of which the first
/// `row_bytes` are written.
struct TransposedRows {
  void* data;
  std::int64_t row_bytes;
  std::int64_t stride;
};

/// Block (first_row, first_column) of transpose_words; `Whole` where it has
/// kWords rows and columns, so that nothing is left to check.
template <bool Whole, class Load>
ACCORDION_INLINE void transpose_block_at(std::int64_t first_row,
                                         std::int64_t first_column,
                                         std::int64_t rows,
                                         std::int64_t columns, const Load& load,
                                         const TransposedRows& to) {
  constexpr std::int64_t kBytes = sizeof(Words);
  const std::int64_t height = Whole ? kWords : rows - first_row;
  const std::int64_t width = Whole ? kWords : columns - first_column;
  Words block[kWords] = {};
  for (std::int64_t i = 0; i < std::min(height, kWords); ++i) {
    load(first_row + i, first_column, Whole ? kWords : std::min(width, kWords),
         block[i]);
  }
  transpose_block(block);
  const std::int64_t offset = first_row * 4;
  const std::int64_t bytes =
      Whole ? kBytes : std::min(kBytes, to.row_bytes - offset);
  char* target =
      static_cast<char*>(to.data) + first_column * to.stride + offset;
  for (std::int64_t j = 0; j < std::min(width, kWords); ++j) {
    std::memcpy(target + j * to.stride, &block[j], bytes);
  }
}

/// Columns [first_column, end) of transpose_words.
template <class Load>
ACCORDION_INLINE void transpose_strip(std::int64_t first_column,
                                      std::int64_t end, std::int64_t rows,
                                      const Load& load,
                                      const TransposedRows& to) {
  for (std::int64_t row = 0; row < rows; row += 2 * kWords) {
    const bool whole_rows = (row + 2 * kWords) * 4 <= to.row_bytes;
    for (std::int64_t column = first_column; column < end; column += kWords) {
      if (whole_rows && column + kWords <= end) {
        transpose_block_at<true>(row, column, rows, end, load, to);
        transpose_block_at<true>(row + kWords, column, rows, end, load, to);
        continue;
      }
      transpose_block_at<false>(row, column, rows, end, load, to);
      if (row + kWords < rows) {
        transpose_block_at<false>(row + kWords, column, rows, end, load, to);
      }
    }
  }
}

/// Transposes a matrix of `rows` x `columns` words, of which load(row, column,
/// count, words) reads `count` next to each other, kWords at most.
///
/// Goes down two blocks before it goes right: each line of the cache that is
/// written is written whole, at once. A strip is as wide as caches have room
/// for rows whose distance is a power of two.
template <class Load>
ACCORDION_INLINE void transpose_words(std::int64_t rows, std::int64_t columns,
                                      const Load& load,
                                      const TransposedRows& to) {
  constexpr std::int64_t kStrip = 32;
  for (std::int64_t first = 0; first < columns; first += kStrip) {
    transpose_strip(first, std::min(columns, first + kStrip), rows, load, to);
  }
}

}  // namespace accordion::kernels
