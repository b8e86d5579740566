// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <limits>

#include <ATen/core/Tensor.h>

#include "accordion/ops/operand.h"

namespace accordion::ops {

/// A window as long as any sequence.
inline constexpr int64_t kWholeSequence = std::numeric_limits<int64_t>::max();

/// softmax(q k^T / sqrt(head_dim)) v where a position sees the last `window`
/// positions, itself among them: all before it by default. Heads of q share
/// those of k and v in groups of heads / kv_heads.
///
/// Time grows with seq_len * min(window, seq_len).
///
/// Operands lie as projections leave them, so that nothing is transposed.
///
/// Shapes  q [batch, seq_len, heads, head_dim];
///         k, v [batch, seq_len, kv_heads, head_dim]; result as q
/// Memory  keeps q, k, v, the result and one float per head and position; for
///         fp16 on the CPU, which is computed in fp32, all of it in fp32
/// Throws  c10::ValueError for shapes that do not fit, or a window below 1
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v,
                            int64_t window = kWholeSequence);

/// The same, with the heads of a position side by side, as a projection takes
/// them: [batch, seq_len, heads * head_dim]. Keeps q, k and v alone, and so
/// does what takes the result; where no kernel of ours serves, as
/// causal_attention.
Operand recomputed_attention(const at::Tensor& q, const at::Tensor& k,
                             const at::Tensor& v,
                             int64_t window = kWholeSequence);

}  // namespace accordion::ops
