// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <stdexcept>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "accordion/plan/model_config.h"

namespace accordion::plan {
namespace {

using nlohmann::json;

std::int64_t count(const json& shape, const char* key) {
  const auto found = shape.find(key);
  if (found == shape.end() || !found->is_number()) {
    throw std::invalid_argument(
        fmt::format("[model_from_published] 'shape' has no number '{}'.", key));
  }
  return static_cast<std::int64_t>(found->get<double>());
}

ModelShape with_biases(ModelShape shape) {
  shape.layer_norm = shape.norm_bias = true;
  shape.qkv_bias = shape.linear_bias = true;
  return shape;
}

/// A table of positions is what is missing from `num_params`, if that is a
/// whole number of rows.
ModelShape with_positions(ModelShape shape, std::int64_t num_params) {
  const std::int64_t missing = num_params - shape.num_params();
  if (missing > 0 && missing % shape.hidden_size == 0) {
    shape.positions = Positions::Learned;
    shape.max_positions = missing / shape.hidden_size;
  }
  return shape;
}

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

ModelShape llama_of_depth(std::int64_t layers) {
  ModelShape shape;
  shape.num_layers = layers;
  shape.hidden_size = round_up(102 * layers, 128);
  shape.num_heads = shape.num_kv_heads = shape.hidden_size / 128;
  shape.head_dim = 128;
  shape.intermediate_size = round_up(8 * shape.hidden_size / 3, 256);
  shape.vocab_size = 32000;
  return shape;
}

}  // namespace

ModelShape model_from_published(const json& published, std::string name) {
  ModelShape shape;
  shape.name = std::move(name);
  shape.num_layers = count(published, "n_layers");
  shape.hidden_size = count(published, "d_model");
  shape.num_heads = count(published, "n_heads");
  shape.num_kv_heads = count(published, "n_kv_heads");
  shape.head_dim =
      shape.hidden_size / std::max<std::int64_t>(1, shape.num_heads);
  shape.intermediate_size = count(published, "d_ff");
  shape.feed_forward_matrices = static_cast<int>(count(published, "ffn_mats"));
  shape.vocab_size = count(published, "vocab");
  shape.tied_embeddings = published.value("tied", false);
  if (shape.feed_forward_matrices == 2) {
    shape.layer_norm = true;
    const std::int64_t params = count(published, "params");
    const ModelShape biased = with_positions(with_biases(shape), params);
    shape =
        biased.num_params() == params ? biased : with_positions(shape, params);
  }
  check(shape);
  return shape;
}

ChosenShape model_for_params(double num_params) {
  if (!(num_params >= 1e6 && num_params <= 1e14)) {
    throw std::invalid_argument(fmt::format(
        "[model_for_params] params is {}, but must be from 1e6 to 1e14.",
        num_params));
  }
  ModelShape best = llama_of_depth(1);
  const auto off = [&](const ModelShape& shape) {
    return std::abs(static_cast<double>(shape.num_params()) - num_params);
  };
  for (std::int64_t layers = 2; layers <= 1500; ++layers) {
    const ModelShape shape = llama_of_depth(layers);
    if (off(shape) < off(best)) {
      best = shape;
    }
  }
  best.name = fmt::format("llama-{:.3g}", num_params);
  return {best,
          fmt::format(
              "Of Llama shapes with hidden = 102 * layers (to the next 128), "
              "heads of 128, feed-forward of 8/3 hidden (to the next 256) and "
              "32,000 tokens, the nearest to {:.4g} parameters: {} layers of "
              "{}, {:.4g} parameters.",
              num_params, best.num_layers, best.hidden_size,
              static_cast<double>(best.num_params()))};
}

}  // namespace accordion::plan
