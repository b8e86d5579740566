// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/models/llama.h"

#include <utility>

#include "accordion/module/activation_checkpoint.h"
#include "accordion/ops/cross_entropy.h"
#include "accordion/ops/linear.h"

namespace accordion {

namespace {

/// Loss of rows of hidden states, and how many were right.
struct HeadLoss {
  at::Tensor weight;  // [vocab_size, hidden_size]
  double divisor;

  using Result = std::pair<at::Tensor, at::Tensor>;
  Result operator()(const at::Tensor& hidden, const at::Tensor& targets) const {
    const ops::CrossEntropy result =
        ops::cross_entropy_(ops::linear(hidden, weight), targets, divisor);
    return {result.loss, result.correct};
  }
};

/// The same, `rows` at a time.
HeadLoss::Result in_chunks(const HeadLoss& head, const at::Tensor& hidden,
                           const at::Tensor& targets, int64_t rows) {
  const std::vector<at::Tensor> parts = hidden.split(rows);
  const std::vector<at::Tensor> part_targets = targets.split(rows);
  HeadLoss::Result sum = checkpoint(head, parts[0], part_targets[0]);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const auto [loss, correct] = checkpoint(head, parts[i], part_targets[i]);
    sum.first = sum.first + loss;
    sum.second = sum.second + correct;
  }
  return sum;
}

}  // namespace

LlamaDecoderImpl::LlamaDecoderImpl(const LlamaConfig& config)
    : config_(config) {
  embed_tokens_ = register_module(
      "embed_tokens", TokenEmbedding(config.vocab_size, config.hidden_size));
  register_module("layers", layers_);
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    units_.emplace_back(config);
    layers_->push_back(units_.back());
  }
  norm_ =
      register_module("norm", RmsNorm(config.hidden_size, config.rms_norm_eps));
}

at::Tensor LlamaDecoderImpl::forward(const at::Tensor& tokens) {
  at::Tensor x = embed_tokens_(tokens);
  const ops::RopeTable rope = rope_table(tokens.size(1), x.scalar_type());
  for (Unit<DecoderLayer>& layer : units_) {
    x = layer(x, rope);
  }
  return norm_(x);
}

ops::RopeTable LlamaDecoderImpl::rope_table(int64_t seq_len,
                                            at::ScalarType dtype) {
  ops::RopeTable& table = rope_tables_[dtype];
  if (!table.cos.defined() || table.cos.size(0) < seq_len) {
    table = ops::make_rope_table(seq_len, config_.head_dim, config_.rope_theta,
                                 dtype);
  }
  return {table.cos.narrow(0, 0, seq_len), table.sin.narrow(0, 0, seq_len)};
}

LlamaImpl::LlamaImpl(const LlamaConfig& config) : config_(config) {
  validate(config, "LlamaConfig");
  model_ = register_module("model", LlamaDecoder(config));
  if (!config.tie_word_embeddings) {
    lm_head_ = register_module("lm_head",
                               Projection(config.hidden_size, config.vocab_size,
                                          /*with_bias=*/false));
  }
}

LlamaOutput LlamaImpl::forward(const at::Tensor& tokens,
                               const at::Tensor& targets, double divisor) {
  TORCH_CHECK_VALUE(
      tokens.dim() == 2 && tokens.size(1) <= config_.max_position_embeddings,
      "[Llama] tokens have shape ", tokens.sizes(),
      ": they must be [batch, seq_len], seq_len at most "
      "max_position_embeddings (",
      config_.max_position_embeddings, ").");
  TORCH_CHECK_VALUE(!targets.defined() || targets.sizes() == tokens.sizes(),
                    "[Llama] tokens have shape ", tokens.sizes(),
                    " but targets ", targets.sizes(), ": they must be alike.");
  const at::Tensor hidden = model_(tokens);
  if (!targets.defined()) {
    return {.logits = ops::linear(hidden, head_weight()),
            .loss = {},
            .correct = {}};
  }
  const double counted =
      divisor != 0 ? divisor
                   : targets.ne(ops::kIgnoredTarget).sum().item<double>();
  const HeadLoss head{head_weight(), counted};
  const auto [loss, correct] =
      loss_chunk_ == 0 ? head(hidden.flatten(0, 1), targets.flatten())
                       : in_chunks(head, hidden.flatten(0, 1),
                                   targets.flatten(), loss_chunk_);
  return {.logits = {}, .loss = loss, .correct = correct};
}

const at::Tensor& LlamaImpl::head_weight() const {
  return lm_head_.is_empty() ? model_->embedding() : lm_head_->weight;
}

}  // namespace accordion
