// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "accordion/shard/unit_layout.h"

namespace accordion::testing {

using Shape = std::vector<std::int64_t>;

/// Trainable fp32 parameters "p0", "p1", … of the given shapes.
inline std::vector<ParameterSpec> specs_of(const std::vector<Shape>& shapes) {
  std::vector<ParameterSpec> specs;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    specs.push_back({.name = "p" + std::to_string(i), .shape = shapes[i]});
  }
  return specs;
}

/// The parameters of a Llama decoder block.
inline std::vector<Shape> llama_block(std::int64_t dim, std::int64_t kv_dim,
                                      std::int64_t ff) {
  return {{dim}, {dim, dim}, {kv_dim, dim}, {kv_dim, dim}, {dim, dim},
          {dim}, {ff, dim},  {ff, dim},     {dim, ff}};
}

inline std::int64_t padding_bytes(const Section& section) {
  return (section.padded_numel - section.numel) *
         element_bytes(section.stored_dtype);
}

/// The bound of [Note: padding].
inline std::int64_t most_padding_bytes(const Section& section, int world_size) {
  const int cuts = section.placement == Placement::Shard ? world_size : 1;
  return std::int64_t{cuts} * 64 +
         section.numel * element_bytes(section.stored_dtype) / 100;
}

/// Pieces with elements, and those of them that are whole rows.
struct PieceCount {
  int all = 0;
  int whole_rows = 0;
};

inline PieceCount count_pieces(const UnitLayout& layout) {
  PieceCount count;
  for (std::size_t p = 0; p < layout.parameters().size(); ++p) {
    const std::size_t dims = layout.parameters()[p].shape.size();
    for (int rank = 0; rank < layout.world_size(); ++rank) {
      const Piece piece = layout.piece(static_cast<int>(p), rank);
      count.all += piece.numel() > 0;
      count.whole_rows += piece.numel() > 0 && piece.local_shape.size() == dims;
    }
  }
  return count;
}

}  // namespace accordion::testing
