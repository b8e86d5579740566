// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/models/llama.h"

#include <utility>

#include "accordion/ops/cross_entropy.h"
#include "accordion/ops/linear.h"
#include "accordion/ops/linear_cross_entropy.h"

namespace accordion {

LlamaDecoderImpl::LlamaDecoderImpl(const LlamaConfig& config)
    : config_(config) {
  embed_tokens_ = register_module(
      "embed_tokens", TokenEmbedding(config.vocab_size, config.hidden_size));
  register_module("layers", layers_);
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    units_.emplace_back(config, layer);
    layers_->push_back(units_.back());
  }
  norm_ =
      register_module("norm", RmsNorm(config.hidden_size, config.rms_norm_eps));
}

at::Tensor LlamaDecoderImpl::forward(const at::Tensor& tokens) {
  at::Tensor x = embed_tokens_(tokens);
  const ops::RopeTable rope = rope_table(tokens.size(1), x);
  for (Unit<DecoderLayer>& layer : units_) {
    x = layer(x, rope);
  }
  return norm_(x);
}

/// On a CUDA device where `x` is; beside tensors on meta it stays on the CPU.
ops::RopeTable LlamaDecoderImpl::rope_table(int64_t seq_len,
                                            const at::Tensor& x) {
  const at::ScalarType dtype = x.scalar_type();
  ops::RopeTable& table = rope_tables_[dtype];
  if (!table.cos.defined() || table.cos.size(0) < seq_len) {
    table = ops::make_rope_table(seq_len, config_.head_dim, config_.rope_theta,
                                 dtype);
  }
  if (x.is_cuda() && table.cos.device() != x.device()) {
    table = {table.cos.to(x.device()), table.sin.to(x.device())};
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
  const at::Tensor rows = hidden.flatten(0, 1);
  const at::Tensor of_rows = targets.flatten();
  const ops::CrossEntropy result =
      loss_chunk_ == 0 ? ops::cross_entropy_(ops::linear(rows, head_weight()),
                                             of_rows, counted)
                       : ops::linear_cross_entropy(rows, head_weight(), of_rows,
                                                   counted, loss_chunk_);
  return {.logits = {}, .loss = result.loss, .correct = result.correct};
}

void LlamaImpl::set_selective_recomputation(bool selective) {
  for (Unit<DecoderLayer>& layer : model_->layers()) {
    layer->set_selective_recomputation(selective);
  }
}

const at::Tensor& LlamaImpl::head_weight() const {
  return lm_head_.is_empty() ? model_->embedding() : lm_head_->weight;
}

}  // namespace accordion
