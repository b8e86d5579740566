// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <utility>

#include <ATen/core/Tensor.h>

namespace accordion::ops {

/// Cosines and sines of the rotary position embedding.
struct RopeTable {
  at::Tensor cos;  ///< [seq_len, head_dim / 2], fp32
  at::Tensor sin;  ///< [seq_len, head_dim / 2], fp32
};

/// Angle p * theta^(-2 i / head_dim) for position p and pair i, in fp32, with
/// the results rounded to `dtype`, in which models of that dtype hold them.
RopeTable make_rope_table(int64_t seq_len, int64_t head_dim, double theta,
                          at::ScalarType dtype);

/// Rotates queries and keys by their positions: the halves (a, b) of a head
/// become (a cos - b sin, b cos + a sin).
///
/// Shapes  q [batch, seq_len, heads, head_dim]; k the same with its own heads
/// Memory  keeps nothing but the table for backward
/// Throws  c10::ValueError when the table does not fit q and k
std::pair<at::Tensor, at::Tensor> rope(const at::Tensor& q, const at::Tensor& k,
                                       const RopeTable& table);

}  // namespace accordion::ops
