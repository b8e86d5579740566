// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include "accordion/ops/operand.h"

namespace accordion::ops {

/// softmax(q k^T / sqrt(head_dim)) v where a position sees itself and those
/// before it. Heads of q share those of k and v in groups of heads / kv_heads.
///
/// Operands lie as projections leave them, so that nothing is transposed.
///
/// Shapes  q [batch, seq_len, heads, head_dim];
///         k, v [batch, seq_len, kv_heads, head_dim]; result as q
/// Memory  keeps q, k, v, the result and one float per head and position; for
///         fp16 on the CPU, which is computed in fp32, all of it in fp32
/// Throws  c10::ValueError for shapes that do not fit
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v);

/// The same, with the heads of a position side by side, as a projection takes
/// them: [batch, seq_len, heads * head_dim]. Keeps q, k and v alone, and so
/// does what takes the result; where no kernel of ours serves, as
/// causal_attention.
Operand recomputed_attention(const at::Tensor& q, const at::Tensor& k,
                             const at::Tensor& v);

}  // namespace accordion::ops
