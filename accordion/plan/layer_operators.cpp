// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/layer_operators.h"

#include <algorithm>

#include "accordion/plan/plan.h"
#include "accordion/plan/real.h"

namespace accordion::plan {
namespace {

/// Bytes an element of an activation takes.
double activation_bytes(const PlanRequest& request) {
  return request.training.precision.compute == ComputeType::Fp32 ? 4.0 : 2.0;
}

/// Adds operators of one rank to both lists.
class OperatorBuilder {
 public:
  explicit OperatorBuilder(const PlanRequest& request)
      : tokens(real(request.training.micro_batch) *
               real(request.training.seq_len) / request.strategy.context),
        bytes(activation_bytes(request)),
        eight_bit(request.training.precision.compute == ComputeType::Fp8),
        compiled(request.training.compiled),
        gathered_8bit(request.training.precision.gather_bytes == 1),
        parts(request.strategy.overlap_tensor ? request.strategy.tensor : 1) {}

  /// tokens x inner x columns, its two products of backward, and with 8 bits
  /// the casts around them.
  void product(double inner, double columns, bool kept, bool biased) {
    Operator forward = one_product(tokens, inner, columns);
    forward.kept = kept && !eight_bit;
    lists.forward.push_back(forward);
    lists.backward.push_back(one_product(tokens, columns, inner));
    Operator weight = one_product(inner, tokens, columns);
    weight.parts = 1;  // its sum is over all tokens
    lists.backward.push_back(weight);
    if (biased) {
      elementwise(lists.backward, bytes * columns * tokens, 1);
    }
    if (eight_bit) {
      add_casts(inner, columns);
    }
  }

  void elementwise(std::vector<Operator>& list, double moved, int kernels) {
    list.push_back({.kind = OperatorKind::Elementwise,
                    .bytes = moved,
                    .kernels = kernels});
  }

  const double tokens;
  const double bytes;
  const bool eight_bit;
  const bool compiled;
  const bool gathered_8bit;
  const int parts;
  OperatorLists lists;

 private:
  /// Input and weight in forward, output's gradient and the input turned over
  /// in backward. A compiler finds the largest value where the input is made,
  /// so that it is read once.
  void add_casts(double inner, double columns) {
    const double each = compiled ? 3.0 : 5.0;
    const double weight = gathered_8bit ? 0.0 : each * inner * columns;
    elementwise(lists.forward, each * tokens * inner + weight,
                compiled ? 2 : 4);
    elementwise(lists.backward,
                each * tokens * columns + 2.0 * tokens * inner + weight,
                compiled ? 2 : 4);
  }

  Operator one_product(double rows, double inner, double columns) const {
    return {.kind = OperatorKind::Product,
            .flops = 2.0 * rows * inner * columns,
            .bytes = bytes * (rows * inner + inner * columns + rows * columns),
            .rows = rows,
            .inner = inner,
            .columns = columns,
            .eight_bit = eight_bit,
            .parts = parts};
  }
};

/// Bytes per element of hidden states that norms and sums move, and kernels.
struct NormCost {
  double forward;
  double backward;
  int kernels;
};

bool is_fused(const PlanRequest& request) {
  return request.stack.fused_elementwise || request.training.compiled;
}

/// One norm and the sum behind it, in elements of 2 bytes. Compiled, the sum is
/// part of the norm's kernel; RMSNorm as an expression casts to fp32, squares,
/// averages, multiplies and casts back.
NormCost norm_cost(const PlanRequest& request) {
  if (request.training.compiled) {
    return {4.0, 5.0, 1};
  }
  if (request.model.layer_norm || request.stack.fused_elementwise) {
    return {2.0 + 3.0, 3.0 + 3.0, 2};
  }
  return {18.0 + 3.0, 36.0 + 3.0, 7};
}

void add_norm(OperatorBuilder& builder, const PlanRequest& request) {
  const Strategy& strategy = request.strategy;
  const double share = strategy.sequence_parallel ? 1.0 / strategy.tensor : 1.0;
  const double elements =
      builder.tokens * real(request.model.hidden_size) * share;
  const NormCost cost = norm_cost(request);
  builder.elementwise(builder.lists.forward,
                      cost.forward * builder.bytes * elements, cost.kernels);
  builder.elementwise(builder.lists.backward,
                      cost.backward * builder.bytes * elements, cost.kernels);
}

/// Turning queries and keys: once over them, or through fp32 complex numbers.
void add_rotation(OperatorBuilder& builder, const PlanRequest& request) {
  if (request.model.positions != Positions::Rotary) {
    return;
  }
  const double elements =
      builder.tokens *
      real(request.model.query_size() + request.model.kv_size()) /
      request.strategy.tensor;
  const double moved = (is_fused(request) ? 2.0 : 10.0) * builder.bytes;
  const int kernels = is_fused(request) ? 1 : 6;
  builder.elementwise(builder.lists.forward, moved * elements, kernels);
  builder.elementwise(builder.lists.backward, moved * elements, kernels);
}

void add_attention(OperatorBuilder& builder, const PlanRequest& request) {
  const double seq = real(request.training.seq_len);
  const double heads = real(request.model.num_heads) / request.strategy.tensor;
  // Of those that are seen, and half a tile of 128 on the diagonal.
  const double seen =
      request.model.mean_positions_seen(request.training.seq_len);
  const double scores = builder.tokens * heads * (seen + 64.0);
  const double flops = 4.0 * scores * real(request.model.head_dim);
  const double io =
      builder.bytes * builder.tokens *
      real(2 * request.model.query_size() + 2 * request.model.kv_size()) /
      request.strategy.tensor;
  Operator forward = {.kind = OperatorKind::Attention,
                      .flops = flops,
                      .bytes = io,
                      .inner = real(request.model.head_dim),
                      .columns = seq,
                      .exponentials = scores,
                      .kept = true};
  Operator backward = forward;
  backward.flops = 2.5 * flops;  // five products against two
  backward.bytes = 2.0 * io;
  if (request.training.attention == AttentionKind::Unfused) {
    // Scores, mask, softmax in fp32 and its cast, each written and read, and
    // not half of them: the mask comes afterwards.
    const double written = builder.tokens * heads * seq;
    forward.bytes += 16.0 * written;
    backward.bytes += 20.0 * written;
    forward.kernels = 5;
    backward.kernels = 7;
  }
  builder.lists.forward.push_back(forward);
  builder.lists.backward.push_back(backward);
}

/// GELU, or SiLU and the product with the gate.
void add_activation(OperatorBuilder& builder, const PlanRequest& request) {
  const double elements = builder.tokens *
                          real(request.model.intermediate_size) /
                          request.strategy.tensor;
  const bool gated = request.model.feed_forward_matrices == 3;
  const bool fused = is_fused(request);
  const double forward = gated ? (fused ? 3.0 : 5.0) : 2.0;
  const double backward = gated ? (fused ? 5.0 : 9.0) : 3.0;
  builder.elementwise(builder.lists.forward, forward * builder.bytes * elements,
                      fused ? 1 : 2);
  builder.elementwise(builder.lists.backward,
                      backward * builder.bytes * elements, fused ? 1 : 3);
}

}  // namespace

OperatorLists layer_operators(const PlanRequest& request) {
  OperatorBuilder builder(request);
  const ModelShape& model = request.model;
  const double tensor = request.strategy.tensor;
  const double hidden = real(model.hidden_size);
  const double query = real(model.query_size()) / tensor;
  const double kv = real(model.kv_size()) / tensor;
  const double wide = real(model.intermediate_size) / tensor;
  add_norm(builder, request);
  // Kept and computed again in turns: query, value, first of the feed-forward,
  // and the last one.
  if (model.layer_norm) {
    builder.product(hidden, query + 2.0 * kv, true, model.qkv_bias);
  } else {
    builder.product(hidden, query, true, model.qkv_bias);
    builder.product(hidden, kv, false, model.qkv_bias);
    builder.product(hidden, kv, true, model.qkv_bias);
  }
  add_rotation(builder, request);
  add_attention(builder, request);
  builder.product(query, hidden, false, model.linear_bias);
  add_norm(builder, request);
  builder.product(hidden, wide, true, model.linear_bias);
  if (model.feed_forward_matrices == 3) {
    builder.product(hidden, wide, false, model.linear_bias);
  }
  add_activation(builder, request);
  builder.product(wide, hidden, true, model.linear_bias);
  return std::move(builder.lists);
}

std::vector<Operator> recomputed(const std::vector<Operator>& forward,
                                 const PlanRequest& request) {
  std::vector<Operator> again;
  if (request.training.checkpointing == Checkpointing::None) {
    return again;
  }
  // The layer's output, which its last product makes, is not needed.
  const auto last = std::find_if(
      forward.rbegin(), forward.rend(),
      [](const Operator& op) { return op.kind == OperatorKind::Product; });
  for (const Operator& op : forward) {
    const bool needed = !request.stack.recompute_stops_early || &op != &*last;
    const Checkpointing policy = request.training.checkpointing;
    const bool kept = (policy == Checkpointing::Selective && op.kept) ||
                      (policy == Checkpointing::BetweenProducts &&
                       op.kind == OperatorKind::Product);
    if (needed && !kept) {
      again.push_back(op);
    }
  }
  return again;
}

OperatorLists embedding_operators(const PlanRequest& request) {
  OperatorBuilder builder(request);
  const double elements = builder.tokens * real(request.model.hidden_size);
  const double tables =
      request.model.positions == Positions::Learned ? 2.0 : 1.0;
  builder.elementwise(builder.lists.forward,
                      (1.0 + tables) * builder.bytes * elements, 2);
  // Sorted indices, then sums.
  builder.elementwise(builder.lists.backward,
                      3.0 * tables * builder.bytes * elements, 4);
  return std::move(builder.lists);
}

OperatorLists head_operators(const PlanRequest& request) {
  OperatorBuilder builder(request);
  add_norm(builder, request);
  const double vocab = real(request.model.vocab_size) / request.strategy.tensor;
  // The head stays in 16 bits where the layers have 8.
  PlanRequest wide = request;
  if (wide.training.precision.compute == ComputeType::Fp8) {
    wide.training.precision.compute = ComputeType::Bf16;
  }
  OperatorBuilder head(wide);
  head.product(real(request.model.hidden_size), vocab, false, false);
  for (const Operator& op : head.lists.forward) {
    builder.lists.forward.push_back(op);
  }
  for (const Operator& op : head.lists.backward) {
    builder.lists.backward.push_back(op);
  }
  // Cast to fp32, log-softmax, loss; and back. In one kernel, or compiled:
  // read once for the sums, once for the gradient, which is written.
  const double logits = builder.tokens * vocab;
  const bool fused = request.training.compiled || request.stack.fused_loss;
  builder.elementwise(builder.lists.forward, (fused ? 2.0 : 18.0) * logits,
                      fused ? 1 : 4);
  builder.elementwise(builder.lists.backward, (fused ? 4.0 : 18.0) * logits,
                      fused ? 1 : 3);
  return std::move(builder.lists);
}

}  // namespace accordion::plan
