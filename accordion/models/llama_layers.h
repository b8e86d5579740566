// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "accordion/models/llama_config.h"
#include "accordion/ops/linear.h"
#include "accordion/ops/operand.h"
#include "accordion/ops/rms_norm.h"
#include "accordion/ops/rope.h"

/// The parts of a Llama decoder. Modules hold parameters under Hugging Face's
/// names, uninitialised: weights are loaded or drawn afterwards, and drawing
/// them twice costs seconds.
namespace accordion {

/// x weight^T + bias.
///
/// Shapes  x [..., in]; weight [out, in]; bias [out], where there is one
class ProjectionImpl : public torch::nn::Module {
 public:
  ProjectionImpl(int64_t in, int64_t out, bool with_bias);
  at::Tensor forward(const ops::Operand& x);
  /// For ops::linears, with other projections of the same x.
  [[nodiscard]] ops::LinearParameters layer() const { return {weight, bias}; }

  at::Tensor weight;  ///< [out, in]
  at::Tensor bias;    ///< [out], or undefined
};
TORCH_MODULE(Projection);

/// ops::rms_norm with its weight.
class RmsNormImpl : public torch::nn::Module {
 public:
  RmsNormImpl(int64_t width, double eps);
  at::Tensor forward(const at::Tensor& x);
  /// ops::add_rms_norm; products keep the norm for backward or, where
  /// `recomputes`, the sum.
  ops::NormedSum add(const at::Tensor& stream, const at::Tensor& branch,
                     bool recomputes);

  at::Tensor weight;  ///< [width]

 private:
  double eps_;
};
TORCH_MODULE(RmsNorm);

/// Rows of a table by token.
class TokenEmbeddingImpl : public torch::nn::Module {
 public:
  TokenEmbeddingImpl(int64_t vocab_size, int64_t width);
  at::Tensor forward(const at::Tensor& tokens);

  at::Tensor weight;  ///< [vocab_size, width]
};
TORCH_MODULE(TokenEmbedding);

class LlamaAttentionImpl : public torch::nn::Module {
 public:
  /// The attention of layer `layer`, which decides whether it has a window.
  LlamaAttentionImpl(const LlamaConfig& config, int64_t layer);
  /// x and the result: [batch, seq_len, hidden_size]
  /// `recomputes`: the result of attention, in backward.
  at::Tensor forward(const ops::Operand& x, const ops::RopeTable& rope,
                     bool recomputes);

 private:
  int64_t head_dim_;
  int64_t window_;  ///< positions that one sees
  Projection q_proj_{nullptr};
  Projection k_proj_{nullptr};
  Projection v_proj_{nullptr};
  Projection o_proj_{nullptr};
};
TORCH_MODULE(LlamaAttention);

class LlamaMlpImpl : public torch::nn::Module {
 public:
  explicit LlamaMlpImpl(const LlamaConfig& config);
  /// `recomputes`: the activation, in backward.
  at::Tensor forward(const ops::Operand& x, bool recomputes);

 private:
  Projection gate_proj_{nullptr};
  Projection up_proj_{nullptr};
  Projection down_proj_{nullptr};
};
TORCH_MODULE(LlamaMlp);

/// One layer: attention and MLP, each behind a norm and beside a residual.
/// The unit that FSDP gathers at once.
class DecoderLayerImpl : public torch::nn::Module {
 public:
  /// The layer of index `layer`.
  DecoderLayerImpl(const LlamaConfig& config, int64_t layer);
  /// x and the result: [batch, seq_len, hidden_size]. The table is no tensor
  /// argument: units cast those to the precision of computation.
  at::Tensor forward(const at::Tensor& x, const ops::RopeTable& rope);

  /// Whether results of products alone are kept for backward, which computes
  /// norms, activation and attention again ([Note: selective recomputation]).
  void set_selective_recomputation(bool selective) { selective_ = selective; }

 private:
  bool selective_ = false;
  RmsNorm input_layernorm_{nullptr};
  LlamaAttention self_attn_{nullptr};
  RmsNorm post_attention_layernorm_{nullptr};
  LlamaMlp mlp_{nullptr};
};
TORCH_MODULE(DecoderLayer);

}  // namespace accordion
