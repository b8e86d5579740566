// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/ops/attention_tiles.h"

#include <algorithm>
#include <cmath>

#include "accordion/ops/kernels/attention_kernels.h"
#include "accordion/ops/kernels/matrix_layout.h"
#include "accordion/ops/product.h"
#include "accordion/ops/scratch.h"

namespace accordion::ops::detail {
namespace {

using kernels::Bf16;
using kernels::MatrixView;
using kernels::Tile;

constexpr int64_t kTile = 64;
/// Keys of a tile start at multiples of it: an even one, for paired rows, and
/// whole tiles of the matrix unit, where there is one.
constexpr int64_t kKeyStep = 16;

template <class T>
int64_t paired(int64_t k) {
  return kernels::padded(static_cast<const T*>(nullptr), k);
}

/// The right-hand operand of a product, ready for multiply.
template <class T>
struct RightOperand {
  const T* data;
  int64_t stride;
};

RightOperand<float> as_right(MatrixView<float> matrix, Scratch<float>&) {
  return {matrix.data, matrix.stride};
}

RightOperand<Bf16> as_right(MatrixView<Bf16> matrix, Scratch<Bf16>& buffer) {
  kernels::pack(matrix, buffer.get());
  return {buffer.get(), matrix.columns};
}

float score_scale(int64_t head_dim) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
}

/// The queries of one tile, and the keys that any of them sees.
struct Range {
  int64_t first_query;
  int64_t queries;
  int64_t first_key;
  int64_t keys;
};

Range range_from(const AttentionShape& shape, int64_t first_query) {
  const int64_t queries = std::min(kTile, shape.seq_len - first_query);
  const int64_t oldest = std::max<int64_t>(0, first_query + 1 - shape.window);
  const int64_t first_key = oldest / kKeyStep * kKeyStep;
  return {first_query, queries, first_key, first_query + queries - first_key};
}

Tile tile_of(const AttentionShape& shape, const Range& range) {
  return {range.first_query - range.first_key, range.queries, range.keys,
          shape.window, score_scale(shape.head_dim)};
}

/// The most keys that a tile can have.
int64_t most_keys(const AttentionShape& shape) {
  return std::min(shape.seq_len, shape.window + kTile + kKeyStep);
}

/// Column j of a right-hand operand.
const float* column(const float* operand, int64_t j) {
  return operand + j;
}
const Bf16* column(const Bf16* operand, int64_t j) {
  return operand + 2 * j;  // [Note: paired rows]
}

/// Forward of one key head. Strides of packed matrices are their columns.
template <class T>
class ForwardTiles {
 public:
  ForwardTiles(const AttentionShape& shape, const AttentionForward<T>& sequence,
               int64_t kv_head)
      : shape_(shape),
        sequence_(sequence),
        keys_(paired<T>(shape.head_dim) * shape.seq_len),
        values_(paired<T>(shape.seq_len) * shape.head_dim),
        scores_(kTile * most_keys(shape)),
        weights_(kTile * paired<T>(most_keys(shape))),
        result_(kTile * shape.head_dim),
        inverse_sums_(kTile) {
    const int64_t offset = kv_head * shape.head_dim;
    kernels::pack_transposed(view(sequence.k + offset), keys_.get());
    right_values_ = as_right(view(sequence.v + offset), values_);
  }

  void attend(int64_t head, int64_t first) {
    const int64_t dim = shape_.head_dim;
    const Range range = range_from(shape_, first);
    const auto [first_query, queries, first_key, keys] = range;
    const int64_t offset = first_query * shape_.q_stride() + head * dim;
    multiply({queries, keys, dim, shape_.q_stride(), shape_.seq_len, keys},
             sequence_.q + offset, column(keys_.get(), first_key),
             scores_.get(), false);
    const int64_t stride = paired<T>(keys);
    kernels::softmax(tile_of(shape_, range), scores_.get(), weights_.get(),
                     stride, inverse_sums_.get(),
                     sequence_.log_sums + head * shape_.seq_len + first_query);
    multiply({queries, dim, stride, stride, right_values_.stride, dim},
             weights_.get(),
             right_values_.data + first_key * right_values_.stride,
             result_.get(), false);
    kernels::scale_rows({result_.get(), queries, dim, dim}, inverse_sums_.get(),
                        sequence_.out + offset, shape_.q_stride());
  }

 private:
  MatrixView<T> view(const T* data) const {
    return {data, shape_.seq_len, shape_.head_dim, shape_.kv_stride()};
  }

  const AttentionShape& shape_;
  const AttentionForward<T>& sequence_;
  Scratch<T> keys_;    // k^T, [head_dim, seq_len], rows in pairs
  Scratch<T> values_;  // v, [seq_len, head_dim], rows in pairs
  RightOperand<T> right_values_;
  Scratch<float> scores_;        // [queries, keys]
  Scratch<T> weights_;           // [queries, keys]
  Scratch<float> result_;        // [queries, head_dim]
  Scratch<float> inverse_sums_;  // [queries]
};

/// Backward of one key head.
template <class T>
class BackwardTiles {
 public:
  BackwardTiles(const AttentionShape& shape,
                const AttentionBackward<T>& sequence, int64_t kv_head)
      : shape_(shape),
        sequence_(sequence),
        kv_offset_(kv_head * shape.head_dim),
        keys_(shape.head_dim * paired<T>(shape.seq_len)),
        dk_(shape.seq_len * shape.head_dim),
        dv_(shape.seq_len * shape.head_dim),
        right_(paired<T>(std::max(kTile, shape.head_dim)) *
               std::max(kTile, shape.head_dim)),
        scores_(most_keys(shape) * kTile),
        dweights_(most_keys(shape) * kTile),
        weights_(most_keys(shape) * kTile),
        dscores_(most_keys(shape) * kTile),
        dscores_packed_(paired<T>(most_keys(shape)) * kTile),
        dq_(shape.head_dim * kTile),
        deltas_(kTile) {
    // An odd number of keys has a partner of zeros.
    std::fill_n(keys_.get(), shape.head_dim * paired<T>(shape.seq_len), T{});
    kernels::transpose(MatrixView<T>{sequence.k + kv_offset_, shape.seq_len,
                                     shape.head_dim, shape.kv_stride()},
                       keys_.get(), paired<T>(shape.seq_len));
    std::fill_n(dk_.get(), shape.seq_len * shape.head_dim, 0.0F);
    std::fill_n(dv_.get(), shape.seq_len * shape.head_dim, 0.0F);
  }

  void attend(int64_t head, int64_t first) {
    const int64_t dim = shape_.head_dim;
    const Range range = range_from(shape_, first);
    const auto [first_query, queries, first_key, keys] = range;
    const int64_t offset = first_query * shape_.q_stride() + head * dim;
    const int64_t kv = kv_offset_ + first_key * shape_.kv_stride();
    const MatrixView<T> q{sequence_.q + offset, queries, dim,
                          shape_.q_stride()};
    const MatrixView<T> dout{sequence_.dout + offset, queries, dim,
                             shape_.q_stride()};
    multiply_by_transpose(sequence_.k + kv, keys, q, scores_.get());
    multiply_by_transpose(sequence_.v + kv, keys, dout, dweights_.get());
    for (int64_t i = 0; i < queries; ++i) {
      deltas_.get()[i] =
          kernels::dot(sequence_.out + offset + i * shape_.q_stride(),
                       dout.data + i * dout.stride, dim);
    }
    kernels::softmax_backward(
        tile_of(shape_, range), scores_.get(), dweights_.get(),
        sequence_.log_sums + head * shape_.seq_len + first_query, deltas_.get(),
        weights_.get(), dscores_.get(), paired<T>(queries));
    accumulate(weights_.get(), keys, dout, dv_.get() + first_key * dim);
    accumulate(dscores_.get(), keys, q, dk_.get() + first_key * dim);
    write_dq(range, sequence_.dq + offset);
  }

  void write_dk_dv() {
    const auto write = [this](Scratch<float>& from, T* to) {
      kernels::scale_rows(
          {from.get(), shape_.seq_len, shape_.head_dim, shape_.head_dim},
          nullptr, to + kv_offset_, shape_.kv_stride());
    };
    write(dk_, sequence_.dk);
    write(dv_, sequence_.dv);
  }

 private:
  /// to [keys, rows of right] = left [keys, head_dim] right^T
  void multiply_by_transpose(const T* left, int64_t keys, MatrixView<T> right,
                             float* to) {
    kernels::pack_transposed(right, right_.get());
    multiply({keys, right.rows, shape_.head_dim, shape_.kv_stride(), right.rows,
              right.rows},
             left, right_.get(), to, false);
  }

  /// sum [keys, head_dim] += left [keys, queries] right [queries, head_dim]
  void accumulate(const T* left, int64_t keys, MatrixView<T> right,
                  float* sum) {
    const int64_t queries = paired<T>(right.rows);
    const RightOperand<T> operand = as_right(right, right_);
    multiply(
        {keys, right.columns, queries, queries, operand.stride, right.columns},
        left, operand.data, sum, true);
  }

  void write_dq(const Range& range, T* to) {
    const int64_t dim = shape_.head_dim;
    const auto [first_query, queries, first_key, keys] = range;
    const RightOperand<T> operand = as_right(
        MatrixView<T>{dscores_.get(), keys, queries, paired<T>(queries)},
        dscores_packed_);
    multiply({dim, queries, paired<T>(keys), paired<T>(shape_.seq_len),
              operand.stride, queries},
             keys_.get() + first_key, operand.data, dq_.get(), false);
    kernels::transpose(MatrixView<float>{dq_.get(), dim, queries, queries}, to,
                       shape_.q_stride());
  }

  const AttentionShape& shape_;
  const AttentionBackward<T>& sequence_;
  int64_t kv_offset_;
  Scratch<T> keys_;            // k^T, [head_dim, seq_len]
  Scratch<float> dk_;          // [seq_len, head_dim]
  Scratch<float> dv_;          // [seq_len, head_dim]
  Scratch<T> right_;           // one packed right-hand operand
  Scratch<float> scores_;      // transposed: [keys, queries]
  Scratch<float> dweights_;    // [keys, queries]
  Scratch<T> weights_;         // [keys, queries]
  Scratch<T> dscores_;         // [keys, queries]
  Scratch<T> dscores_packed_;  // [keys, queries], rows in pairs
  Scratch<float> dq_;          // transposed: [head_dim, queries]
  Scratch<float> deltas_;      // [queries]: dout . out
};

/// Runs the tiles of the query heads that share one key head.
template <class Tiles>
void for_each_tile(const AttentionShape& shape, int64_t kv_head, Tiles& tiles) {
  for (int64_t member = 0; member < shape.group(); ++member) {
    for (int64_t first = 0; first < shape.seq_len; first += kTile) {
      tiles.attend(kv_head * shape.group() + member, first);
    }
  }
}

}  // namespace

template <class T>
void attend(const AttentionShape& shape, const AttentionForward<T>& sequence,
            int64_t kv_head) {
  ForwardTiles<T> tiles(shape, sequence, kv_head);
  for_each_tile(shape, kv_head, tiles);
}

template <class T>
void attend_backward(const AttentionShape& shape,
                     const AttentionBackward<T>& sequence, int64_t kv_head) {
  BackwardTiles<T> tiles(shape, sequence, kv_head);
  for_each_tile(shape, kv_head, tiles);
  tiles.write_dk_dv();
}

template void attend(const AttentionShape&, const AttentionForward<float>&,
                     int64_t);
template void attend(const AttentionShape&, const AttentionForward<Bf16>&,
                     int64_t);
template void attend_backward(const AttentionShape&,
                              const AttentionBackward<float>&, int64_t);
template void attend_backward(const AttentionShape&,
                              const AttentionBackward<Bf16>&, int64_t);

}  // namespace accordion::ops::detail
