// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>

namespace accordion {

/// A model configuration that cannot be used: which key, which value, why.
class ConfigError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// The shape of a Llama decoder, under the names of Hugging Face's config.json.
/// Mistral's is one with a sliding window, Qwen2's one with biases of queries,
/// keys and values, and windows in its upper layers.
struct LlamaConfig {
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;  ///< divides num_attention_heads
  std::int64_t head_dim = 0;             ///< even
  std::int64_t vocab_size = 0;
  std::int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  double initializer_range = 0.02;   ///< deviation of fresh matrices
  bool tie_word_embeddings = false;  ///< the head is the embedding
  bool attention_bias = false;
  bool qkv_bias = false;  ///< queries, keys and values have one, if not all do
  bool mlp_bias = false;
  /// Positions that one sees in layers from max_window_layers on, itself among
  /// them. 0, the default: all before it, in every layer.
  std::int64_t sliding_window = 0;
  std::int64_t max_window_layers = 0;

  /// Reads a config.json of model_type "llama", "mistral" or "qwen2", or the
  /// one in a folder.
  ///
  /// Keys that say nothing of the shape (architectures, torch_dtype, token ids)
  /// are passed over; absent ones take Hugging Face's defaults.
  ///
  /// Throws ConfigError that names file, key and value for what is missing,
  ///        ill-typed, impossible, or not implemented
  static LlamaConfig from_file(const std::filesystem::path& path);
  /// The text of that file.
  static std::string text_of(const std::filesystem::path& path);

  /// The same from text; `name` stands for the file in messages.
  static LlamaConfig from_json(std::string_view text, const std::string& name);

  /// Whether queries, keys and values have biases.
  [[nodiscard]] bool has_qkv_bias() const { return attention_bias || qkv_bias; }
  /// Whether a position sees sliding_window positions alone in this layer.
  [[nodiscard]] bool is_windowed(std::int64_t layer) const {
    return sliding_window > 0 && layer >= max_window_layers;
  }
  /// Elements of all parameters, a tied head counted once.
  [[nodiscard]] std::int64_t numel() const;
};

/// Throws ConfigError for a shape that no model can have. `name` stands for
/// the source of the configuration in messages.
void validate(const LlamaConfig& config, const std::string& name);

}  // namespace accordion
