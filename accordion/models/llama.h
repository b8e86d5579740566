// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/pimpl.h>

#include "accordion/models/llama_config.h"
#include "accordion/models/llama_layers.h"
#include "accordion/module/for_each_tensor.h"
#include "accordion/module/unit.h"

namespace accordion {

/// What Llama computes: logits where no targets were given, else the rest.
struct LlamaOutput {
  at::Tensor logits;   ///< [batch, seq_len, vocab_size]
  at::Tensor loss;     ///< scalar, fp32
  at::Tensor correct;  ///< scalar, int64: targets that the model put first
};

template <>
struct TensorTraversal<LlamaOutput> {
  static constexpr bool has_tensors = true;
  template <class F>
  static void visit(LlamaOutput& output, F&& f) {
    for_each_tensor(output.logits, f);
    for_each_tensor(output.loss, f);
    for_each_tensor(output.correct, f);
  }
};

/// Embedding, layers and the last norm: "model" in Hugging Face's names.
class LlamaDecoderImpl : public torch::nn::Module {
 public:
  explicit LlamaDecoderImpl(const LlamaConfig& config);
  /// [batch, seq_len] tokens to [batch, seq_len, hidden_size].
  at::Tensor forward(const at::Tensor& tokens);

  [[nodiscard]] const at::Tensor& embedding() const {
    return embed_tokens_->weight;
  }
  [[nodiscard]] std::vector<Unit<DecoderLayer>>& layers() { return units_; }

 private:
  ops::RopeTable rope_table(int64_t seq_len, const at::Tensor& x);

  LlamaConfig config_;
  TokenEmbedding embed_tokens_{nullptr};
  torch::nn::ModuleList layers_;
  std::vector<Unit<DecoderLayer>> units_;  // those of layers_, with their type
  RmsNorm norm_{nullptr};
  /// For the longest sequence so far; shorter ones use its first rows.
  std::map<at::ScalarType, ops::RopeTable> rope_tables_;
};
TORCH_MODULE(LlamaDecoder);

/// A Llama decoder with its head: RMSNorm, rotary positions, grouped-query
/// attention, SwiGLU. Parameters bear Hugging Face's names and are not
/// initialised. Each layer is a Unit; the rest belongs to whoever wraps the
/// model: Unit<Llama>. A tied head has no parameter of its own.
///
///     Unit<Llama> model(LlamaConfig::from_file("config.json"));
///     at::Tensor loss = model(tokens, targets).loss;
class LlamaImpl : public torch::nn::Module {
 public:
  /// Throws ConfigError for an impossible configuration
  explicit LlamaImpl(const LlamaConfig& config);

  /// Logits, or with `targets` the cross-entropy: the sum of -log p over the
  /// targets, divided by `divisor`. Logits then exist for a moment only.
  ///
  /// Shapes   tokens, targets [batch, seq_len], int64; a target of
  ///          ops::kIgnoredTarget does not count
  /// `divisor` 0: the number of targets that count, which gives the mean; with
  ///          several ranks or microbatches their number over all of them
  /// Throws   c10::ValueError for shapes that do not fit or a sequence longer
  ///          than max_position_embeddings
  LlamaOutput forward(const at::Tensor& tokens, const at::Tensor& targets = {},
                      double divisor = 0);

  [[nodiscard]] const LlamaConfig& config() const { return config_; }

  /// Computes head and loss of at most `tokens` at a time, so that logits of
  /// the others never exist beside them (ops::linear_cross_entropy). 0, as at
  /// first: all at once.
  void set_loss_chunk(int64_t tokens) { loss_chunk_ = tokens; }
  /// See DecoderLayerImpl; off at first.
  void set_selective_recomputation(bool selective);

 private:
  [[nodiscard]] const at::Tensor& head_weight() const;

  LlamaConfig config_;
  LlamaDecoder model_{nullptr};
  Projection lm_head_{nullptr};  // empty where the head is tied
  int64_t loss_chunk_ = 0;
};
TORCH_MODULE(Llama);

}  // namespace accordion
