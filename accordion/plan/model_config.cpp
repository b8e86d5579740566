// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/model_config.h"

#include <array>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "accordion/plan/nearest_name.h"
#include "accordion/plan/text_file.h"

namespace accordion::plan {
namespace {

using nlohmann::json;

[[noreturn]] void fail(const std::string& what) {
  throw std::invalid_argument("[model_from_config] " + what);
}

std::int64_t positive(const json& value, std::string_view key) {
  if (!value.is_number()) {
    fail(fmt::format("'{}' is {}, but must be a whole number.", key,
                     value.dump()));
  }
  const auto number = value.get<double>();
  if (number < 1 || number > 1e12 ||
      number != static_cast<double>(static_cast<std::int64_t>(number))) {
    fail(fmt::format("'{}' is {}, but must be a whole number from 1 to 1e12.",
                     key, value.dump()));
  }
  return static_cast<std::int64_t>(number);
}

std::int64_t required(const json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) {
    fail(fmt::format("The key '{}' is missing.", key));
  }
  return positive(*found, key);
}

std::int64_t optional(const json& config, const char* key,
                      std::int64_t otherwise) {
  const auto found = config.find(key);
  return found == config.end() || found->is_null() ? otherwise
                                                   : positive(*found, key);
}

bool flag(const json& config, const char* key, bool otherwise) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) {
    return otherwise;
  }
  if (!found->is_boolean()) {
    fail(fmt::format("'{}' is {}, but must be true or false.", key,
                     found->dump()));
  }
  return found->get<bool>();
}

std::int64_t divided(std::int64_t hidden, std::int64_t heads,
                     const char* heads_key) {
  if (hidden % heads != 0) {
    fail(fmt::format(
        "'{}' is {}, which does not divide the hidden size {}; the nearest "
        "that does is {}.",
        heads_key, heads, hidden, nearest_divisor(hidden, heads)));
  }
  return hidden / heads;
}

ModelShape llama_like(const json& config, bool qwen) {
  ModelShape shape;
  shape.num_layers = required(config, "num_hidden_layers");
  shape.hidden_size = required(config, "hidden_size");
  shape.num_heads = required(config, "num_attention_heads");
  shape.num_kv_heads = optional(config, "num_key_value_heads", shape.num_heads);
  shape.head_dim =
      config.contains("head_dim") && !config["head_dim"].is_null()
          ? required(config, "head_dim")
          : divided(shape.hidden_size, shape.num_heads, "num_attention_heads");
  shape.intermediate_size = required(config, "intermediate_size");
  shape.vocab_size = required(config, "vocab_size");
  shape.tied_embeddings = flag(config, "tie_word_embeddings", false);
  shape.qkv_bias = qwen || flag(config, "attention_bias", false);
  // Llama has no windows, Mistral's is in every layer unless null, and Qwen2's
  // in the upper layers where a flag says so.
  const auto window = config.find("sliding_window");
  const bool has_window = window == config.end() || !window->is_null();
  if (qwen && has_window && flag(config, "use_sliding_window", false)) {
    shape.sliding_window = optional(config, "sliding_window", 4096);
    shape.max_window_layers = optional(config, "max_window_layers", 28);
  }
  if (config["model_type"] == "mistral" && has_window) {
    shape.sliding_window = optional(config, "sliding_window", 4096);
  }
  return shape;
}

/// What GPT-2, MPT and GPT-NeoX have in common: LayerNorm and two matrices.
ModelShape with_layer_norm(std::int64_t hidden, std::int64_t heads,
                           const char* heads_key) {
  ModelShape shape;
  shape.hidden_size = hidden;
  shape.num_heads = shape.num_kv_heads = heads;
  shape.head_dim = divided(hidden, heads, heads_key);
  shape.feed_forward_matrices = 2;
  shape.layer_norm = true;
  shape.norm_bias = shape.qkv_bias = shape.linear_bias = true;
  return shape;
}

ModelShape gpt2(const json& config) {
  ModelShape shape = with_layer_norm(required(config, "n_embd"),
                                     required(config, "n_head"), "n_head");
  shape.num_layers = required(config, "n_layer");
  shape.intermediate_size = optional(config, "n_inner", 4 * shape.hidden_size);
  shape.vocab_size = required(config, "vocab_size");
  shape.tied_embeddings = flag(config, "tie_word_embeddings", true);
  shape.positions = Positions::Learned;
  shape.max_positions = optional(config, "n_positions", 1024);
  return shape;
}

ModelShape mpt(const json& config) {
  ModelShape shape = with_layer_norm(required(config, "d_model"),
                                     required(config, "n_heads"), "n_heads");
  const json attention = config.value("attn_config", json::object());
  shape.num_layers = required(config, "n_layers");
  shape.num_kv_heads = optional(attention, "kv_n_heads", shape.num_heads);
  shape.intermediate_size =
      optional(config, "expansion_ratio", 4) * shape.hidden_size;
  shape.vocab_size = required(config, "vocab_size");
  shape.tied_embeddings = flag(config, "tie_word_embeddings", true);
  const bool biased = !flag(config, "no_bias", false);
  shape.norm_bias = shape.qkv_bias = shape.linear_bias = biased;
  shape.positions = flag(attention, "alibi", false)         ? Positions::Bias
                    : flag(config, "learned_pos_emb", true) ? Positions::Learned
                                                            : Positions::Rotary;
  shape.max_positions = optional(config, "max_seq_len", 2048);
  return shape;
}

ModelShape gpt_neox(const json& config) {
  ModelShape shape = with_layer_norm(required(config, "hidden_size"),
                                     required(config, "num_attention_heads"),
                                     "num_attention_heads");
  shape.num_layers = required(config, "num_hidden_layers");
  shape.intermediate_size = required(config, "intermediate_size");
  shape.vocab_size = required(config, "vocab_size");
  shape.tied_embeddings = flag(config, "tie_word_embeddings", false);
  const bool biased = flag(config, "attention_bias", true);
  shape.qkv_bias = biased;
  return shape;
}

constexpr std::array<std::string_view, 6> kFamilies = {
    "llama", "mistral", "qwen2", "gpt2", "mpt", "gpt_neox"};

ModelShape read_family(const json& config, std::string_view family) {
  if (family == "llama" || family == "mistral") {
    return llama_like(config, false);
  }
  if (family == "qwen2") {
    return llama_like(config, true);
  }
  if (family == "gpt2") {
    return gpt2(config);
  }
  if (family == "mpt") {
    return mpt(config);
  }
  if (family == "gpt_neox") {
    return gpt_neox(config);
  }
  fail(fmt::format(
      "'model_type' is '{}', which is not known; the nearest is '{}', and "
      "there are {}.",
      family, nearest_name(family, kFamilies), fmt::join(kFamilies, ", ")));
}

}  // namespace

ModelShape model_from_config(const json& config) {
  if (!config.is_object()) {
    fail("The configuration must be a JSON object.");
  }
  const auto family = config.find("model_type");
  if (family == config.end() || !family->is_string()) {
    fail(
        fmt::format("The key 'model_type' is missing or no text; known are {}.",
                    fmt::join(kFamilies, ", ")));
  }
  ModelShape shape = read_family(config, family->get<std::string>());
  shape.name = family->get<std::string>();
  check(shape);
  return shape;
}

ModelShape model_from_file(const std::string& path) {
  return model_from_config(read_json(path, "[model_from_file]"));
}

}  // namespace accordion::plan
