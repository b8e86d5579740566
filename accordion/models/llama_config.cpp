// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/models/llama_config.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace accordion {
namespace {

using nlohmann::json;

[[noreturn]] void fail(const std::string& file, std::string_view key,
                       const std::string& value, std::string_view what) {
  throw ConfigError(fmt::format("[LlamaConfig] '{}': \"{}\" is {}: {}.", file,
                                key, value, what));
}

/// Typed look-ups in one JSON object, with errors that say where.
class Reader {
 public:
  Reader(const json& object, const std::string& file)
      : object_(object), file_(file) {}

  [[nodiscard]] bool has(const char* key) const {
    return object_.contains(key) && !object_.at(key).is_null();
  }
  [[nodiscard]] bool is_null(const char* key) const {
    return object_.contains(key) && object_.at(key).is_null();
  }
  [[nodiscard]] const json& at(const char* key) const {
    return object_.at(key);
  }

  [[nodiscard]] std::int64_t integer(const char* key) const {
    if (!has(key)) {
      throw ConfigError(fmt::format(
          "[LlamaConfig] '{}' has no \"{}\", which a Llama model needs.", file_,
          key));
    }
    return integer(key, 0);
  }
  [[nodiscard]] std::int64_t integer(const char* key,
                                     std::int64_t fallback) const {
    if (!has(key)) {
      return fallback;
    }
    if (!at(key).is_number_integer()) {
      fail(file_, key, at(key).dump(), "it must be a whole number");
    }
    return at(key).get<std::int64_t>();
  }
  [[nodiscard]] double number(const char* key, double fallback) const {
    if (has(key) && !at(key).is_number()) {
      fail(file_, key, at(key).dump(), "it must be a number");
    }
    return has(key) ? at(key).get<double>() : fallback;
  }
  [[nodiscard]] bool boolean(const char* key, bool fallback) const {
    if (has(key) && !at(key).is_boolean()) {
      fail(file_, key, at(key).dump(), "it must be true or false");
    }
    return has(key) ? at(key).get<bool>() : fallback;
  }
  /// A key that changes the model in a way we do not implement.
  void require(const char* key, const json& supported, const char* what) const {
    if (has(key) && at(key) != supported) {
      fail(file_, key, at(key).dump(), what);
    }
  }

 private:
  const json& object_;
  const std::string& file_;
};

void reject_unsupported(const Reader& reader, const std::string& file) {
  if (!reader.has("model_type")) {
    throw ConfigError(fmt::format(
        "[LlamaConfig] '{}' has no \"model_type\"; it must be \"llama\", "
        "\"mistral\" or \"qwen2\".",
        file));
  }
  const json& type = reader.at("model_type");
  if (type != "llama" && type != "mistral" && type != "qwen2") {
    fail(file, "model_type", type.dump(),
         "only \"llama\", \"mistral\" and \"qwen2\" are implemented");
  }
  reader.require("hidden_act", "silu", "only \"silu\" is implemented");
  reader.require("attention_dropout", 0.0, "dropout is not implemented");
  if (type == "llama") {
    reader.require("sliding_window", nullptr,
                   "Llama models have no windows; those of model_type "
                   "\"mistral\" do");
  }
  reader.require("partial_rotary_factor", 1.0,
                 "partly rotated heads are not implemented");
  reader.require("quantization_config", nullptr,
                 "quantised weights cannot be trained");
}

/// rope_theta, from its own key or from the newer nested rope_parameters.
/// Older files put scaling in rope_scaling, newer ones among the parameters.
double read_rope_theta(const Reader& reader, const std::string& file) {
  double theta = reader.number("rope_theta", 10000.0);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!reader.has(key)) {
      continue;
    }
    const json& parameters = reader.at(key);
    if (!parameters.is_object()) {
      fail(file, key, parameters.dump(), "it must be an object");
    }
    const Reader nested(parameters, file);
    for (const char* type : {"rope_type", "type"}) {
      if (nested.has(type) && nested.at(type) != "default") {
        fail(file, key, parameters.dump(),
             "scaled rotary embeddings are not implemented");
      }
    }
    if (nested.has("factor")) {
      fail(file, key, parameters.dump(),
           "scaled rotary embeddings are not implemented");
    }
    nested.require("partial_rotary_factor", 1.0,
                   "partly rotated heads are not implemented");
    theta = nested.number("rope_theta", theta);
  }
  return theta;
}

void require_positive(std::int64_t value, const char* key,
                      const std::string& name) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 31;
  if (value < 1 || value >= kLargest) {
    fail(name, key, std::to_string(value), "it must be from 1 to 2^31 - 1");
  }
}

/// What Hugging Face takes where a key is absent, where families differ.
struct FamilyDefaults {
  std::int64_t num_key_value_heads;  ///< 0: as many as there are queries'
  std::int64_t max_position_embeddings;
};

FamilyDefaults defaults_of(const json& model_type) {
  if (model_type == "mistral") {
    return {8, 131'072};
  }
  return model_type == "qwen2" ? FamilyDefaults{32, 32'768}
                               : FamilyDefaults{0, 2'048};
}

/// Mistral's window holds in every layer, and is there unless null; Qwen2's
/// from max_window_layers on, where use_sliding_window says so.
void read_window(LlamaConfig& config, const Reader& reader,
                 const std::string& file) {
  const json& type = reader.at("model_type");
  const bool is_null = reader.is_null("sliding_window");
  const bool qwen = !is_null && type == "qwen2" &&
                    reader.boolean("use_sliding_window", false);
  if (qwen || (!is_null && type == "mistral")) {
    config.sliding_window = reader.integer("sliding_window", 4096);
    require_positive(config.sliding_window, "sliding_window", file);
  }
  if (qwen) {
    config.max_window_layers = reader.integer("max_window_layers", 28);
  }
  json expected = json::array();
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    expected.push_back(config.is_windowed(i) ? "sliding_attention"
                                             : "full_attention");
  }
  reader.require("layer_types", expected,
                 "other layers than sliding_window and max_window_layers say "
                 "cannot have windows");
}

void require_positive(double value, const char* key, const std::string& name) {
  if (!(value > 0) || !std::isfinite(value)) {
    fail(name, key, fmt::format("{}", value), "it must be above 0");
  }
}

/// A config.json, or the one in a folder.
std::filesystem::path file_at(const std::filesystem::path& path) {
  return std::filesystem::is_directory(path) ? path / "config.json" : path;
}

}  // namespace

std::string LlamaConfig::text_of(const std::filesystem::path& path) {
  const std::filesystem::path file_path = file_at(path);
  std::ifstream file(file_path);
  if (!file) {
    throw ConfigError(
        fmt::format("[LlamaConfig] '{}' cannot be read. Give a Hugging Face "
                    "config.json, or "
                    "the folder that holds it.",
                    file_path.string()));
  }
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

LlamaConfig LlamaConfig::from_file(const std::filesystem::path& path) {
  return from_json(text_of(path), file_at(path).string());
}

LlamaConfig LlamaConfig::from_json(std::string_view text,
                                   const std::string& name) {
  const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    throw ConfigError(
        fmt::format("[LlamaConfig] '{}' is not a JSON object.", name));
  }
  const Reader reader(object, name);
  reject_unsupported(reader, name);
  const FamilyDefaults defaults = defaults_of(reader.at("model_type"));
  LlamaConfig c;
  c.hidden_size = reader.integer("hidden_size");
  c.intermediate_size = reader.integer("intermediate_size");
  c.num_hidden_layers = reader.integer("num_hidden_layers");
  c.num_attention_heads = reader.integer("num_attention_heads");
  c.num_key_value_heads =
      reader.integer("num_key_value_heads", defaults.num_key_value_heads > 0
                                                ? defaults.num_key_value_heads
                                                : c.num_attention_heads);
  c.vocab_size = reader.integer("vocab_size");
  c.max_position_embeddings = reader.integer("max_position_embeddings",
                                             defaults.max_position_embeddings);
  c.rms_norm_eps = reader.number("rms_norm_eps", c.rms_norm_eps);
  c.rope_theta = read_rope_theta(reader, name);
  c.initializer_range = reader.number("initializer_range", c.initializer_range);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", false);
  c.attention_bias = reader.boolean("attention_bias", false);
  c.mlp_bias = reader.boolean("mlp_bias", false);
  c.qkv_bias = reader.at("model_type") == "qwen2";
  read_window(c, reader, name);
  require_positive(c.num_attention_heads, "num_attention_heads", name);
  if (!reader.has("head_dim") && c.hidden_size % c.num_attention_heads != 0) {
    fail(name, "hidden_size", std::to_string(c.hidden_size),
         fmt::format("it must be a multiple of num_attention_heads ({}) where "
                     "head_dim is not given",
                     c.num_attention_heads));
  }
  c.head_dim =
      reader.integer("head_dim", c.hidden_size / c.num_attention_heads);
  validate(c, name);
  return c;
}

std::int64_t LlamaConfig::numel() const {
  const std::int64_t q_rows = num_attention_heads * head_dim;
  const std::int64_t kv_rows = num_key_value_heads * head_dim;
  std::int64_t layer = 2 * hidden_size +                       // norms
                       2 * (q_rows + kv_rows) * hidden_size +  // q, k, v, o
                       3 * intermediate_size * hidden_size;
  layer += has_qkv_bias() ? q_rows + 2 * kv_rows : 0;
  layer += attention_bias ? hidden_size : 0;
  layer += mlp_bias ? 2 * intermediate_size + hidden_size : 0;
  const std::int64_t embedding = vocab_size * hidden_size;
  return num_hidden_layers * layer + hidden_size +
         embedding * (tie_word_embeddings ? 1 : 2);
}

void validate(const LlamaConfig& c, const std::string& name) {
  require_positive(c.hidden_size, "hidden_size", name);
  require_positive(c.intermediate_size, "intermediate_size", name);
  require_positive(c.num_hidden_layers, "num_hidden_layers", name);
  require_positive(c.num_attention_heads, "num_attention_heads", name);
  require_positive(c.num_key_value_heads, "num_key_value_heads", name);
  require_positive(c.head_dim, "head_dim", name);
  require_positive(c.vocab_size, "vocab_size", name);
  require_positive(c.max_position_embeddings, "max_position_embeddings", name);
  require_positive(c.rms_norm_eps, "rms_norm_eps", name);
  require_positive(c.rope_theta, "rope_theta", name);
  require_positive(c.initializer_range, "initializer_range", name);
  if (c.sliding_window < 0 || c.max_window_layers < 0) {
    fail(name, c.sliding_window < 0 ? "sliding_window" : "max_window_layers",
         std::to_string(std::min(c.sliding_window, c.max_window_layers)),
         "it must be at least 0");
  }
  if (c.num_attention_heads % c.num_key_value_heads != 0) {
    fail(name, "num_key_value_heads", std::to_string(c.num_key_value_heads),
         fmt::format("it must divide num_attention_heads ({})",
                     c.num_attention_heads));
  }
  if (c.head_dim % 2 != 0) {
    fail(name, "head_dim", std::to_string(c.head_dim),
         "it must be even, since rotary embeddings turn pairs");
  }
}

}  // namespace accordion
