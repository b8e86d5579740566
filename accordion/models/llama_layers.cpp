// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/models/llama_layers.h"

#include <ATen/ops/empty.h>

#include "accordion/ops/attention.h"
#include "accordion/ops/embedding.h"
#include "accordion/ops/swiglu.h"

namespace accordion {

ProjectionImpl::ProjectionImpl(int64_t in, int64_t out, bool with_bias)
    : weight(register_parameter("weight", at::empty({out, in}))) {
  if (with_bias) {
    bias = register_parameter("bias", at::empty({out}));
  }
}

at::Tensor ProjectionImpl::forward(const ops::Operand& x) {
  return ops::linear(x, weight, bias);
}

RmsNormImpl::RmsNormImpl(int64_t width, double eps)
    : weight(register_parameter("weight", at::empty({width}))), eps_(eps) {}

at::Tensor RmsNormImpl::forward(const at::Tensor& x) {
  return ops::rms_norm(x, weight, eps_);
}

ops::NormedSum RmsNormImpl::add(const at::Tensor& stream,
                                const at::Tensor& branch, bool recomputes) {
  return recomputes ? ops::recomputed_add_rms_norm(stream, branch, weight, eps_)
                    : ops::add_rms_norm(stream, branch, weight, eps_);
}

TokenEmbeddingImpl::TokenEmbeddingImpl(int64_t vocab_size, int64_t width)
    : weight(register_parameter("weight", at::empty({vocab_size, width}))) {}

at::Tensor TokenEmbeddingImpl::forward(const at::Tensor& tokens) {
  return ops::embedding(weight, tokens);
}

LlamaAttentionImpl::LlamaAttentionImpl(const LlamaConfig& config, int64_t layer)
    : head_dim_(config.head_dim),
      window_(config.is_windowed(layer) ? config.sliding_window
                                        : ops::kWholeSequence) {
  const int64_t hidden = config.hidden_size;
  const int64_t q_rows = config.num_attention_heads * config.head_dim;
  const int64_t kv_rows = config.num_key_value_heads * config.head_dim;
  const bool bias = config.has_qkv_bias();
  q_proj_ = register_module("q_proj", Projection(hidden, q_rows, bias));
  k_proj_ = register_module("k_proj", Projection(hidden, kv_rows, bias));
  v_proj_ = register_module("v_proj", Projection(hidden, kv_rows, bias));
  o_proj_ = register_module("o_proj",
                            Projection(q_rows, hidden, config.attention_bias));
}

at::Tensor LlamaAttentionImpl::forward(const ops::Operand& x,
                                       const ops::RopeTable& rope,
                                       bool recomputes) {
  const std::vector<at::Tensor> projected =
      ops::linears(x, {q_proj_->layer(), k_proj_->layer(), v_proj_->layer()});
  const auto heads = [this, &x](const at::Tensor& rows) {
    return rows.view({x.value().size(0), x.value().size(1), -1, head_dim_});
  };
  const auto [q, k] = ops::rope(heads(projected[0]), heads(projected[1]), rope);
  const at::Tensor v = heads(projected[2]);
  return o_proj_(
      recomputes
          ? ops::recomputed_attention(q, k, v, window_)
          : ops::Operand(ops::causal_attention(q, k, v, window_).flatten(2)));
}

LlamaMlpImpl::LlamaMlpImpl(const LlamaConfig& config) {
  const int64_t hidden = config.hidden_size;
  const int64_t inner = config.intermediate_size;
  const bool bias = config.mlp_bias;
  gate_proj_ = register_module("gate_proj", Projection(hidden, inner, bias));
  up_proj_ = register_module("up_proj", Projection(hidden, inner, bias));
  down_proj_ = register_module("down_proj", Projection(inner, hidden, bias));
}

at::Tensor LlamaMlpImpl::forward(const ops::Operand& x, bool recomputes) {
  const std::vector<at::Tensor> projected =
      ops::linears(x, {gate_proj_->layer(), up_proj_->layer()});
  const at::Tensor& gate = projected[0];
  const at::Tensor& up = projected[1];
  return down_proj_(recomputes ? ops::recomputed_swiglu(gate, up)
                               : ops::Operand(ops::swiglu(gate, up)));
}

DecoderLayerImpl::DecoderLayerImpl(const LlamaConfig& config, int64_t layer) {
  const auto norm = [&config] {
    return RmsNorm(config.hidden_size, config.rms_norm_eps);
  };
  input_layernorm_ = register_module("input_layernorm", norm());
  self_attn_ = register_module("self_attn", LlamaAttention(config, layer));
  post_attention_layernorm_ =
      register_module("post_attention_layernorm", norm());
  mlp_ = register_module("mlp", LlamaMlp(config));
}

at::Tensor DecoderLayerImpl::forward(const at::Tensor& x,
                                     const ops::RopeTable& rope) {
  const auto [entered, normed] = input_layernorm_->add(x, {}, selective_);
  const at::Tensor branch = self_attn_(normed, rope, selective_);
  const auto [attended, normed_again] =
      post_attention_layernorm_->add(entered, branch, selective_);
  return attended + mlp_(normed_again, selective_);
}

}  // namespace accordion
