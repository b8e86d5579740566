// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/models/llama_layers.h"

#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>

#include "accordion/ops/attention.h"
#include "accordion/ops/linear.h"
#include "accordion/ops/rms_norm.h"
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

ops::Operand RmsNormImpl::operand(const at::Tensor& x, bool recomputes) {
  return recomputes ? ops::recomputed_rms_norm(x, weight, eps_)
                    : ops::Operand(ops::rms_norm(x, weight, eps_));
}

TokenEmbeddingImpl::TokenEmbeddingImpl(int64_t vocab_size, int64_t width)
    : weight(register_parameter("weight", at::empty({vocab_size, width}))) {}

at::Tensor TokenEmbeddingImpl::forward(const at::Tensor& tokens) {
  return at::embedding(weight, tokens);
}

LlamaAttentionImpl::LlamaAttentionImpl(const LlamaConfig& config)
    : head_dim_(config.head_dim) {
  const int64_t hidden = config.hidden_size;
  const int64_t q_rows = config.num_attention_heads * config.head_dim;
  const int64_t kv_rows = config.num_key_value_heads * config.head_dim;
  const bool bias = config.attention_bias;
  q_proj_ = register_module("q_proj", Projection(hidden, q_rows, bias));
  k_proj_ = register_module("k_proj", Projection(hidden, kv_rows, bias));
  v_proj_ = register_module("v_proj", Projection(hidden, kv_rows, bias));
  o_proj_ = register_module("o_proj", Projection(q_rows, hidden, bias));
}

at::Tensor LlamaAttentionImpl::forward(const ops::Operand& x,
                                       const ops::RopeTable& rope,
                                       bool recomputes) {
  const auto heads = [this, &x](Projection& projection) {
    return projection(x).view(
        {x.value().size(0), x.value().size(1), -1, head_dim_});
  };
  const auto [q, k] = ops::rope(heads(q_proj_), heads(k_proj_), rope);
  const at::Tensor v = heads(v_proj_);
  return o_proj_(recomputes
                     ? ops::recomputed_attention(q, k, v)
                     : ops::Operand(ops::causal_attention(q, k, v).flatten(2)));
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
  const at::Tensor gate = gate_proj_(x);
  const at::Tensor up = up_proj_(x);
  return down_proj_(recomputes ? ops::recomputed_swiglu(gate, up)
                               : ops::Operand(ops::swiglu(gate, up)));
}

DecoderLayerImpl::DecoderLayerImpl(const LlamaConfig& config) {
  const auto norm = [&config] {
    return RmsNorm(config.hidden_size, config.rms_norm_eps);
  };
  input_layernorm_ = register_module("input_layernorm", norm());
  self_attn_ = register_module("self_attn", LlamaAttention(config));
  post_attention_layernorm_ =
      register_module("post_attention_layernorm", norm());
  mlp_ = register_module("mlp", LlamaMlp(config));
}

at::Tensor DecoderLayerImpl::forward(const at::Tensor& x,
                                     const ops::RopeTable& rope) {
  const at::Tensor attended =
      x +
      self_attn_(input_layernorm_->operand(x, selective_), rope, selective_);
  return attended +
         mlp_(post_attention_layernorm_->operand(attended, selective_),
              selective_);
}

}  // namespace accordion
