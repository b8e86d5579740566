// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/activation_memory.h"

#include <algorithm>

#include "accordion/plan/plan.h"
#include "accordion/plan/real.h"

namespace accordion::plan {
namespace {

/// Sizes of a token's tensors on one rank, in bytes of the computation's type.
struct TokenBytes {
  explicit TokenBytes(const PlanRequest& request) {
    const ModelShape& model = request.model;
    const Strategy& strategy = request.strategy;
    const double each =
        request.training.precision.compute == ComputeType::Fp32 ? 4.0 : 2.0;
    tokens = real(request.training.micro_batch) *
             real(request.training.seq_len) / strategy.context;
    hidden = each * real(model.hidden_size) /
             (strategy.sequence_parallel ? strategy.tensor : 1);
    query = each * real(model.query_size()) / strategy.tensor;
    kv = each * real(model.kv_size()) / strategy.tensor;
    wide = each * real(model.intermediate_size) / strategy.tensor;
    scores = real(model.num_heads) / strategy.tensor *
             real(request.training.seq_len);
    sums = 4.0 * real(model.num_heads) / strategy.tensor;
  }

  double tokens;
  double hidden;
  double query;
  double kv;
  double wide;
  double scores;  ///< elements
  double sums;
};

bool is_fused(const PlanRequest& request) {
  return request.stack.fused_elementwise || request.training.compiled;
}

/// What attention saves for a token: queries, keys, values, output and sums;
/// unfused also scores and probabilities.
double attention_bytes(const PlanRequest& request, const TokenBytes& token) {
  const double inputs = token.query + 2.0 * token.kv;
  if (request.training.attention == AttentionKind::Unfused) {
    return inputs + token.query + 6.0 * token.scores;
  }
  return inputs + token.query + token.sums;
}

}  // namespace

double saved_by_whole_layer(const PlanRequest& request) {
  const TokenBytes token(request);
  const bool fused = is_fused(request);
  const bool gated = request.model.feed_forward_matrices == 3;
  // Input and output of each of two norms.
  const bool expression = !fused && !request.model.layer_norm;
  const double norms = 2.0 * token.hidden * (expression ? 5.0 : 2.0);
  const double feed_forward = token.wide * (gated ? (fused ? 3.0 : 4.0) : 2.0);
  return token.tokens *
         (norms + attention_bytes(request, token) + feed_forward);
}

double saved_by_layer(const PlanRequest& request) {
  const Training& training = request.training;
  const TokenBytes token(request);
  const double whole = saved_by_whole_layer(request);
  double kept = whole;
  if (training.checkpointing == Checkpointing::Full) {
    kept = token.tokens * token.hidden;
  } else if (training.checkpointing == Checkpointing::Selective) {
    const double attention = token.query + token.sums;
    const double products =
        training.precision.compute == ComputeType::Fp8
            ? 0.0
            : token.query + token.kv + token.wide + token.hidden;
    kept = token.tokens * (token.hidden + attention + products);
  } else if (training.checkpointing == Checkpointing::BetweenProducts) {
    kept = token.tokens * (2.0 * token.hidden + token.query + 2.0 * token.kv +
                           2.0 * token.wide);
  }
  return training.checkpointed_share * kept +
         (1.0 - training.checkpointed_share) * whole;
}

double working_of_layer(const PlanRequest& request) {
  const TokenBytes token(request);
  // Gradients of the feed-forward's two wide tensors and of the residual.
  return token.tokens * (2.0 * token.wide + 2.0 * token.hidden);
}

double logits_memory(const PlanRequest& request) {
  const TokenBytes token(request);
  const double elements =
      token.tokens * real(request.model.vocab_size) / request.strategy.tensor;
  const double parts = real(request.training.loss_chunks);
  if (request.stack.fused_loss) {
    // Logits, which their gradient replaces, and what the next product of
    // backward reads.
    return elements * 4.0 / parts;
  }
  // Log-probabilities, their gradient and the logits' in fp32, and the logits
  // as the head left them.
  const bool kept = request.stack.loss_parts_are_kept && parts > 1.0;
  return kept ? elements * (6.0 + 8.0 / parts) : elements * 14.0 / parts;
}

double microbatches_in_flight(const PlanRequest& request) {
  const Strategy& strategy = request.strategy;
  const double count = real(request.training.grad_accum);
  if (strategy.pipeline == 1) {
    return 1.0;
  }
  if (strategy.stages_per_rank == 1) {
    return std::min(count, real(strategy.pipeline));
  }
  // Interleaved: warming up takes (stages - 1) microbatches of a part more.
  const double parts = strategy.stages_per_rank;
  return std::min(count, strategy.pipeline + (strategy.pipeline - 1) / parts);
}

}  // namespace accordion::plan
