// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "accordion/plan/model_shape.h"

namespace accordion::plan {

/// The shape that a Hugging Face config.json describes. Families: llama,
/// mistral, qwen2, gpt2, mpt, gpt_neox (its model_type).
///
/// Throws std::invalid_argument that names the key that is missing, of another
///        type or out of range, or the family and the nearest one known
ModelShape model_from_config(const nlohmann::json& config);

/// The same of a file. Throws std::runtime_error if it cannot be read.
ModelShape model_from_file(const std::string& path);

/// The shape of a row of published runs: its `shape` object with params,
/// n_layers, d_model, n_heads, n_kv_heads, d_ff, ffn_mats, vocab and tied.
/// Biases and a learned table of positions, which it does not state, are taken
/// where they make its `params` exact.
///
/// Throws std::invalid_argument that names the key that is missing
ModelShape model_from_published(const nlohmann::json& shape, std::string name);

/// A Llama shape of about `num_params` parameters, and how it was chosen.
struct ChosenShape {
  ModelShape shape;
  std::string rule;  ///< one sentence, for printing
};

/// The rule: 128 a head and a vocabulary of 32,000; width 128 times the depth's
/// proportion of published Llama models (hidden = 102 * layers, to the next
/// multiple of 128 a head), gated feed-forward of 8/3 of the width to the next
/// multiple of 256; of all depths the one nearest in parameters.
///
/// Throws std::invalid_argument below 1e6 or above 1e14
ChosenShape model_for_params(double num_params);

}  // namespace accordion::plan
