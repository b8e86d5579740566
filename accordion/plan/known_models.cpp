// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/known_models.h"

#include <array>

#include "accordion/plan/nearest_name.h"

namespace accordion::plan {
namespace {

/// Llama-like: gated feed-forward, RMSNorm, rotary positions.
struct KnownShape {
  std::string_view name;
  std::int64_t layers;
  std::int64_t hidden;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t intermediate;
  std::int64_t vocab;
  bool tied = false;
  bool qkv_bias = false;
};

// config.json of each on its publisher's page.
constexpr std::array<KnownShape, 16> kModels = {{
    {"llama-2-7b", 32, 4096, 32, 32, 11008, 32000},
    {"llama-2-13b", 40, 5120, 40, 40, 13824, 32000},
    {"llama-2-34b", 48, 8192, 64, 8, 22016, 32000},
    {"llama-2-70b", 80, 8192, 64, 8, 28672, 32000},
    {"llama-3-8b", 32, 4096, 32, 8, 14336, 128256},
    {"llama-3-70b", 80, 8192, 64, 8, 28672, 128256},
    {"llama-3.1-8b", 32, 4096, 32, 8, 14336, 128256},
    {"llama-3.1-70b", 80, 8192, 64, 8, 28672, 128256},
    {"llama-3.1-405b", 126, 16384, 128, 8, 53248, 128256},
    {"llama-3.2-1b", 16, 2048, 32, 8, 8192, 128256, true},
    {"llama-3.2-3b", 28, 3072, 24, 8, 8192, 128256, true},
    {"llama-3.3-70b", 80, 8192, 64, 8, 28672, 128256},
    {"mistral-7b", 32, 4096, 32, 8, 14336, 32000},
    {"qwen2-7b", 28, 3584, 28, 4, 18944, 152064, false, true},
    {"qwen2.5-7b", 28, 3584, 28, 4, 18944, 152064, false, true},
    {"qwen2.5-32b", 64, 5120, 40, 8, 27648, 152064, false, true},
}};

/// "Llama 3.1 8B", "llama3.1-8b" and "Llama-3.1-8B" are alike.
std::string plain(std::string_view name) {
  std::string result;
  for (const char c : normalized(name)) {
    if (c != '-') {
      result.push_back(c);
    }
  }
  return result;
}

}  // namespace

std::optional<ModelShape> known_model(std::string_view name) {
  for (const KnownShape& known : kModels) {
    if (plain(known.name) == plain(name)) {
      ModelShape shape;
      shape.name = known.name;
      shape.num_layers = known.layers;
      shape.hidden_size = known.hidden;
      shape.num_heads = known.heads;
      shape.num_kv_heads = known.kv_heads;
      shape.head_dim = known.hidden / known.heads;
      shape.intermediate_size = known.intermediate;
      shape.vocab_size = known.vocab;
      shape.tied_embeddings = known.tied;
      shape.qkv_bias = known.qkv_bias;
      return shape;
    }
  }
  return std::nullopt;
}

std::vector<std::string_view> known_model_names() {
  std::vector<std::string_view> names;
  for (const KnownShape& known : kModels) {
    names.push_back(known.name);
  }
  return names;
}

}  // namespace accordion::plan
