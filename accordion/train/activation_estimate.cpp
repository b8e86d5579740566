// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/activation_estimate.h"

#include <algorithm>

#include "accordion/offload/offload_target.h"

namespace accordion {
namespace {

/// Elements of the tensors that a microbatch's tokens make, by their width.
class TokenTensors {
 public:
  TokenTensors(const LlamaConfig& model, const TrainConfig& config)
      : tokens_(config.train.batch_size * config.data.seq_len),
        element_bytes_(config.fsdp.param_dtype == "fp32" ? 4 : 2),
        model_(model) {}

  [[nodiscard]] std::int64_t tokens() const { return tokens_; }
  [[nodiscard]] std::int64_t bytes(std::int64_t width) const {
    return tokens_ * width * element_bytes_;
  }
  /// A layer's input, or output.
  [[nodiscard]] std::int64_t hidden() const {
    return bytes(model_.hidden_size);
  }
  [[nodiscard]] std::int64_t logits(std::int64_t rows) const {
    return rows * model_.vocab_size * element_bytes_;
  }
  /// All that a layer saves, its input included: inputs of both norms and what
  /// comes of them; q, k, v, what attention makes of them and the logarithms of
  /// its sums in fp32; gate, up and their product.
  [[nodiscard]] std::int64_t layer() const {
    const std::int64_t q = model_.num_attention_heads * model_.head_dim;
    const std::int64_t kv = model_.num_key_value_heads * model_.head_dim;
    constexpr std::int64_t kFp32Bytes = 4;
    return bytes(4 * model_.hidden_size + 2 * q + 2 * kv +
                 3 * model_.intermediate_size) +
           tokens_ * model_.num_attention_heads * kFp32Bytes;
  }
  /// Of that, what a layer saves that computes norms, activation and attention
  /// again: their inputs.
  [[nodiscard]] std::int64_t selective_layer() const {
    const std::int64_t q = model_.num_attention_heads * model_.head_dim;
    const std::int64_t kv = model_.num_key_value_heads * model_.head_dim;
    return bytes(2 * model_.hidden_size + q + 2 * kv +
                 2 * model_.intermediate_size);
  }
  /// Gradients on the way when a layer's backward is in its MLP: of its output,
  /// of the product, of gate and up.
  [[nodiscard]] std::int64_t layer_gradients() const {
    return bytes(model_.hidden_size + 3 * model_.intermediate_size);
  }

 private:
  std::int64_t tokens_;
  std::int64_t element_bytes_;
  const LlamaConfig& model_;
};

/// As PagedArrays grows them for so many arrays of these bytes.
std::int64_t buffers_of_inputs(std::int64_t bytes, std::int64_t count) {
  const OffloadTarget target;
  const std::int64_t block =
      std::min(target.block_bytes, offload_aligned(bytes));
  return block * target.buffers_for(count * ((bytes + block - 1) / block));
}

}  // namespace

std::int64_t estimated_activations(const LlamaConfig& model,
                                   const TrainConfig& config) {
  const TokenTensors of(model, config);
  const std::int64_t every =
      checkpointed_every(config.memory.activation_checkpointing).value_or(0);
  const std::int64_t layers = model.num_hidden_layers;
  const std::int64_t checkpointed = every == 0 ? 0 : layers / every;
  const bool selective = config.memory.activation_checkpointing == "selective";
  // Offloaded inputs pass through buffers, and come back one at a time.
  const std::int64_t inputs =
      config.memory.offload_activations
          ? buffers_of_inputs(of.hidden(), checkpointed) + of.hidden()
          : checkpointed * of.hidden();
  const std::int64_t saved =
      (layers - checkpointed) *
          (selective ? of.selective_layer() : of.layer()) +
      inputs;
  // The last layer may have to be made again before its backward.
  const bool last_again = every > 0 && layers % every == 0;
  const std::int64_t in_layer =
      of.layer_gradients() + (last_again ? of.layer() - of.hidden() : 0);

  // The last norm's input and output live until the loss has its gradient. A
  // chunk has a gradient of the head of its own.
  const std::int64_t chunk = config.memory.chunked_loss_tokens;
  const bool whole = chunk == 0 || chunk >= of.tokens();
  const std::int64_t in_loss =
      3 * of.hidden() + (whole
                             ? of.logits(of.tokens())
                             : of.logits(chunk) + of.logits(model.hidden_size));
  return saved + std::max(in_loss, in_layer);
}

}  // namespace accordion
