// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/model_shape.h"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "accordion/plan/nearest_name.h"

namespace accordion::plan {
namespace {

std::int64_t norm_params(const ModelShape& shape) {
  return shape.hidden_size * (shape.norm_bias ? 2 : 1);
}

void check_positive(const char* field, std::int64_t value) {
  if (value < 1) {
    throw std::invalid_argument(fmt::format(
        "[ModelShape] {} is {}, but must be at least 1.", field, value));
  }
}

}  // namespace

std::int64_t ModelShape::layer_matrix_params() const {
  return 2 * hidden_size * (query_size() + kv_size()) +
         feed_forward_matrices * hidden_size * intermediate_size;
}

std::int64_t ModelShape::layer_params() const {
  std::int64_t biases = qkv_bias ? query_size() + 2 * kv_size() : 0;
  if (linear_bias) {
    biases += 2 * hidden_size + (feed_forward_matrices - 1) * intermediate_size;
  }
  return layer_matrix_params() + biases + 2 * norm_params(*this);
}

std::int64_t ModelShape::embedding_params() const {
  const std::int64_t rows =
      vocab_size + (positions == Positions::Learned ? max_positions : 0);
  return rows * hidden_size;
}

std::int64_t ModelShape::head_params() const {
  return tied_embeddings ? 0 : vocab_size * hidden_size;
}

std::int64_t ModelShape::root_params() const {
  return embedding_params() + head_params() + norm_params(*this);
}

std::int64_t ModelShape::num_params() const {
  return num_layers * layer_params() + root_params();
}

double ModelShape::mean_positions_seen(std::int64_t seq_len) const {
  const auto seq = static_cast<double>(seq_len);
  const auto window = static_cast<double>(
      sliding_window > 0 ? std::min(sliding_window, seq_len) : seq_len);
  // As many as came before until the window is full.
  const double in_window = window - window * window / (2.0 * seq);
  const double share =
      static_cast<double>(std::min(max_window_layers, num_layers)) /
      static_cast<double>(num_layers);
  return share * seq / 2.0 + (1.0 - share) * in_window;
}

double ModelShape::model_flops_per_token(std::int64_t seq_len) const {
  return 6.0 * static_cast<double>(num_params()) +
         12.0 * static_cast<double>(num_layers) *
             static_cast<double>(query_size()) * static_cast<double>(seq_len);
}

void check(const ModelShape& shape) {
  check_positive("num_layers", shape.num_layers);
  check_positive("hidden_size", shape.hidden_size);
  check_positive("num_heads", shape.num_heads);
  check_positive("num_kv_heads", shape.num_kv_heads);
  check_positive("head_dim", shape.head_dim);
  check_positive("intermediate_size", shape.intermediate_size);
  check_positive("vocab_size", shape.vocab_size);
  if (shape.feed_forward_matrices != 2 && shape.feed_forward_matrices != 3) {
    throw std::invalid_argument(fmt::format(
        "[ModelShape] feed_forward_matrices is {}, but must be 2 or 3 (gated).",
        shape.feed_forward_matrices));
  }
  if (shape.num_heads % shape.num_kv_heads != 0) {
    throw std::invalid_argument(fmt::format(
        "[ModelShape] num_kv_heads is {}, which does not divide num_heads {}; "
        "the nearest that does is {}.",
        shape.num_kv_heads, shape.num_heads,
        nearest_divisor(shape.num_heads, shape.num_kv_heads)));
  }
  if (shape.positions == Positions::Learned) {
    check_positive("max_positions", shape.max_positions);
  }
}

}  // namespace accordion::plan
