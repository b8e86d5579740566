// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

namespace accordion::ops {

/// softmax(q k^T / sqrt(head_dim)) v where a position sees itself and those
/// before it. Heads of q share those of k and v in groups of heads / kv_heads.
///
/// Operands lie as projections leave them, so that nothing is transposed.
///
/// Shapes  q [batch, seq_len, heads, head_dim];
///         k, v [batch, seq_len, kv_heads, head_dim]; result as q
/// Memory  keeps q, k, v, the result and one float per head and position
/// Throws  c10::ValueError for shapes that do not fit
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v);

}  // namespace accordion::ops
