// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

namespace accordion::plan {

struct PlanRequest;

/// What bounds an operator, and so how its time is computed.
enum class OperatorKind : std::uint8_t { Product, Attention, Elementwise };

/// One operator of one layer on one rank, for one microbatch.
struct Operator {
  OperatorKind kind = OperatorKind::Elementwise;
  double flops = 0.0;
  double bytes = 0.0;  ///< read and written in the device's memory
  // Of a product [rows, inner] x [inner, columns]; of attention, inner is the
  // head's dim and columns the sequence length.
  double rows = 0.0;
  double inner = 0.0;
  double columns = 0.0;
  bool eight_bit = false;
  /// Cut by rows into this many products, one after another, so that
  /// collectives run under them.
  int parts = 1;
  double exponentials = 0.0;  ///< of attention's softmax
  int kernels = 1;
  /// Selective checkpointing keeps its output; else it is computed again.
  bool kept = false;
};

/// Forward and backward of a part of the model, in the order they run.
struct OperatorLists {
  std::vector<Operator> forward;
  std::vector<Operator> backward;
};

/// One layer. Backward lacks what checkpointing computes again: those are the
/// operators of forward that recomputed() returns.
///
/// // [Note: bytes of operators]
/// Bytes are counted from the formulas: a norm in one kernel reads and writes
/// an element once; written as PyTorch expressions it is six kernels, some in
/// fp32. A product's epilogue adds its bias, and its bias' gradient is a sum
/// over all tokens. Nothing here is fitted.
OperatorLists layer_operators(const PlanRequest& request);

/// Those of `forward` that backward runs again.
std::vector<Operator> recomputed(const std::vector<Operator>& forward,
                                 const PlanRequest& request);

/// Looking up and adding embeddings.
OperatorLists embedding_operators(const PlanRequest& request);

/// Last norm, head and loss.
OperatorLists head_operators(const PlanRequest& request);

}  // namespace accordion::plan
