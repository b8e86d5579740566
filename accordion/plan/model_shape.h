// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

namespace accordion::plan {

/// How a decoder knows where a token stands.
enum class Positions : std::uint8_t {
  Rotary,   ///< queries and keys are turned; no parameters
  Learned,  ///< a table of vectors, added to the embedding
  Bias,     ///< a bias on the attention's scores (ALiBi); no parameters
};

/// What of a decoder's shape decides its memory and time.
///
/// A layer is norm, attention (query, key, value, output), norm, feed-forward;
/// below the layers is an embedding, above them a norm and a head.
///
/// Units  elements; counts of parameters are exact for the families that
///        model_config.h reads
struct ModelShape {
  std::string name;
  std::int64_t num_layers = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;  ///< fewer than num_heads: grouped queries
  std::int64_t head_dim = 0;      ///< of one query, key or value
  std::int64_t intermediate_size = 0;  ///< width of the feed-forward
  /// 3: gated (SwiGLU), two matrices up and one down; 2: one up, one down.
  int feed_forward_matrices = 3;
  std::int64_t vocab_size = 0;
  bool tied_embeddings = false;  ///< the head's matrix is the embedding's
  Positions positions = Positions::Rotary;
  std::int64_t max_positions = 0;  ///< rows of a learned table
  bool layer_norm = false;         ///< LayerNorm; else RMSNorm
  bool norm_bias = false;          ///< norms have a bias beside their weight
  bool qkv_bias = false;           ///< of the query, key and value matrices
  bool linear_bias = false;        ///< of the layer's other matrices
  /// Positions that one sees in layers from max_window_layers on; 0: all.
  std::int64_t sliding_window = 0;
  std::int64_t max_window_layers = 0;

  /// Of all queries, and of all keys (or values), of a token.
  [[nodiscard]] std::int64_t query_size() const { return num_heads * head_dim; }
  [[nodiscard]] std::int64_t kv_size() const { return num_kv_heads * head_dim; }

  /// Positions that one sees, at most its sequence, averaged over layers and
  /// the positions of a sequence.
  [[nodiscard]] double mean_positions_seen(std::int64_t seq_len) const;
  /// Of the matrices that a token is multiplied with in one layer.
  [[nodiscard]] std::int64_t layer_matrix_params() const;
  [[nodiscard]] std::int64_t layer_params() const;
  /// Token embedding and table of positions.
  [[nodiscard]] std::int64_t embedding_params() const;
  /// The head's own matrix; 0 where it is tied.
  [[nodiscard]] std::int64_t head_params() const;
  /// All but the layers: embedding, last norm, head.
  [[nodiscard]] std::int64_t root_params() const;
  [[nodiscard]] std::int64_t num_params() const;

  /// FLOPs of forward and backward a token, as published model FLOPs count
  /// them: 6 a parameter and 12 layers * query_size * seq_len for attention,
  /// causal or not, recomputation left out.
  ///
  /// Source  Chowdhery et al. 2022, arXiv:2204.02311, appendix B
  [[nodiscard]] double model_flops_per_token(std::int64_t seq_len) const;

  bool operator==(const ModelShape&) const = default;
};

/// Throws std::invalid_argument that names the field: a size below 1, heads
///        that do not divide, with the nearest value that would
void check(const ModelShape& shape);

}  // namespace accordion::plan
