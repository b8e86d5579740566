// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/models/llama_parameters.h"

#include <fmt/format.h>

namespace accordion {
namespace {

void add_projection(std::vector<LlamaParameter>& parameters,
                    const std::string& name, std::int64_t rows,
                    std::int64_t columns, bool has_bias) {
  parameters.push_back({name + ".weight", {rows, columns}});
  if (has_bias) {
    parameters.push_back({name + ".bias", {rows}});
  }
}

void add_layer(std::vector<LlamaParameter>& parameters, const LlamaConfig& c,
               const std::string& layer) {
  const std::int64_t q_rows = c.num_attention_heads * c.head_dim;
  const std::int64_t kv_rows = c.num_key_value_heads * c.head_dim;
  const auto add = [&](const char* name, std::int64_t rows,
                       std::int64_t columns, bool has_bias) {
    add_projection(parameters, layer + name, rows, columns, has_bias);
  };
  parameters.push_back({layer + "input_layernorm.weight", {c.hidden_size}});
  add("self_attn.q_proj", q_rows, c.hidden_size, c.has_qkv_bias());
  add("self_attn.k_proj", kv_rows, c.hidden_size, c.has_qkv_bias());
  add("self_attn.v_proj", kv_rows, c.hidden_size, c.has_qkv_bias());
  add("self_attn.o_proj", c.hidden_size, q_rows, c.attention_bias);
  parameters.push_back(
      {layer + "post_attention_layernorm.weight", {c.hidden_size}});
  add("mlp.gate_proj", c.intermediate_size, c.hidden_size, c.mlp_bias);
  add("mlp.up_proj", c.intermediate_size, c.hidden_size, c.mlp_bias);
  add("mlp.down_proj", c.hidden_size, c.intermediate_size, c.mlp_bias);
}

}  // namespace

std::vector<LlamaParameter> llama_parameters(const LlamaConfig& config) {
  std::vector<LlamaParameter> parameters = {
      {"model.embed_tokens.weight", {config.vocab_size, config.hidden_size}}};
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    add_layer(parameters, config, fmt::format("model.layers.{}.", layer));
  }
  parameters.push_back({"model.norm.weight", {config.hidden_size}});
  if (!config.tie_word_embeddings) {
    parameters.push_back(
        {"lm_head.weight", {config.vocab_size, config.hidden_size}});
  }
  return parameters;
}

}  // namespace accordion
