// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace accordion::ops::detail {

/// Sizes of one attention, and how its operands lie.
///
/// Units  elements. Heads of one position lie together, rows of head_dim apart.
struct AttentionShape {
  int64_t batch;
  int64_t seq_len;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t window;  ///< positions that one sees: from 1 to seq_len

  [[nodiscard]] int64_t group() const { return heads / kv_heads; }
  [[nodiscard]] int64_t q_stride() const { return heads * head_dim; }
  [[nodiscard]] int64_t kv_stride() const { return kv_heads * head_dim; }
};

/// Operands and results of attention for one sequence: element (position, head,
/// i) of q, out and their gradients at position * q_stride + head * head_dim +
/// i, of k, v and theirs at position * kv_stride + …
template <class T>
struct AttentionForward {
  const T* q;
  const T* k;
  const T* v;
  T* out;
  float* log_sums;  ///< [heads, seq_len]
};

template <class T>
struct AttentionBackward {
  const T* q;
  const T* k;
  const T* v;
  const T* out;
  const float* log_sums;
  const T* dout;
  T* dq;
  T* dk;
  T* dv;
};

/// Attends with the query heads that share key head `kv_head`, in one thread.
///
/// // [Note: tiles]
/// Queries are taken kTile at a time against all keys that any of them sees, so
/// scores above the diagonal, or before the window of the first of them, are
/// never computed, and a tile of scores stays in the second-level cache. The
/// gradient computes scores again, transposed: then
/// every product finds its left operand as it lies,
///     S^T = K Q^T,   dP^T = V dO^T,   dV += P^T dO,   dK += dS^T Q,
///     dQ^T = K^T dS^T,
/// and only the small dQ^T has to be turned over.
template <class T>
void attend(const AttentionShape& shape, const AttentionForward<T>& sequence,
            int64_t kv_head);
template <class T>
void attend_backward(const AttentionShape& shape,
                     const AttentionBackward<T>& sequence, int64_t kv_head);

}  // namespace accordion::ops::detail
