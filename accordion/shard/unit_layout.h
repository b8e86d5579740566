// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "accordion/comm/dtype.h"

namespace accordion {

/// How a parameter lies along the shard axis.
enum class Placement : std::uint8_t {
  Shard,      ///< cut into pieces, one per rank
  Replicate,  ///< whole on every rank
};

/// What the layout must know of one parameter of a unit.
struct ParameterSpec {
  std::string name;                       ///< FQN, for errors
  std::vector<std::int64_t> shape;        ///< global shape; {} is a scalar
  DType stored_dtype = DType::Float32;    ///< of the sharded parameter
  DType gathered_dtype = DType::Float32;  ///< of the unsharded parameter
  bool requires_grad = true;
  Placement placement = Placement::Shard;
};

/// The part of one parameter that one rank owns.
///
/// Units  elements; begin and end count in the parameter's row-major order
struct Piece {
  std::int64_t begin = 0;
  std::int64_t end = 0;           ///< begin == end: this rank owns nothing
  std::int64_t shard_offset = 0;  ///< of element `begin` in the rank's shard
  /// [rows, …] when both ends are row boundaries of dim 0, else [end - begin].
  std::vector<std::int64_t> local_shape;

  [[nodiscard]] std::int64_t numel() const { return end - begin; }
};

/// Parameters of a unit that share dtypes, requires_grad and placement. They
/// lie end to end in one flat buffer that is cut in equal parts, one per rank.
///
/// Units  elements
struct Section {
  DType stored_dtype;
  DType gathered_dtype;
  bool requires_grad;
  Placement placement;
  std::vector<int> parameters;  ///< indices into the specs, in buffer order
  std::vector<std::int64_t> offsets;  ///< of each of them in the flat buffer
  std::int64_t numel = 0;             ///< sum of the parameters' own elements
  std::int64_t numel_per_rank = 0;    ///< length of a rank's shard
  std::int64_t padded_numel = 0;      ///< numel_per_rank * number of cuts
};

/// A half-open range of elements of a section's flat buffer.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Where every element of a unit's parameters lives: which section, where in
/// its flat buffer, on which rank. Arithmetic only; a value.
///
/// // [Note: padding]
/// A rank owns elements [r * n, (r + 1) * n) of a section, n the same for all
/// ranks, as equal-size collectives want it. Parameters start on 64 bytes and
/// every cut falls on 64 bytes. n is chosen, and gaps are left, so that as many
/// cuts as possible also fall on row boundaries (dim 0) of the parameter they
/// cut. The padding of a section is at most
///     world_size * 64 bytes + 1 % of its own bytes        (stored dtype).
/// Where parameters are so many and so small that starting each on 64 bytes
/// would break the bound, they lie element after element instead. At world
/// size 1 nothing is cut and nothing follows the last parameter.
class UnitLayout {
 public:
  /// Lays out `specs` for `world_size` ranks. A section of placement Replicate
  /// is cut once, as for one rank.
  ///
  /// Throws std::invalid_argument for a negative dim, more than 2^56 elements,
  ///        a repeated name, or world_size < 1
  static UnitLayout make(std::vector<ParameterSpec> specs, int world_size);

  [[nodiscard]] int world_size() const { return world_size_; }
  [[nodiscard]] const std::vector<ParameterSpec>& parameters() const {
    return specs_;
  }
  [[nodiscard]] const std::vector<Section>& sections() const {
    return sections_;
  }

  /// Elements of a parameter.
  [[nodiscard]] std::int64_t numel(int parameter) const;
  /// Index of the section that holds a parameter.
  [[nodiscard]] int section_of(int parameter) const;
  /// Offset of a parameter in its section's flat buffer, in elements.
  [[nodiscard]] std::int64_t offset_of(int parameter) const;
  /// What `rank` owns of a parameter; everything where it is replicated.
  [[nodiscard]] Piece piece(int parameter, int rank) const;
  /// The ranges of a section's flat buffer that belong to no parameter.
  [[nodiscard]] std::vector<Range> gaps(int section) const;

  /// Bytes of one rank's shards in the stored dtypes, all sections.
  [[nodiscard]] std::int64_t sharded_bytes() const;
  /// Bytes of all unsharded sections in the gathered dtypes: what one unshard
  /// needs. Each section starts on 64 bytes.
  [[nodiscard]] std::int64_t unsharded_bytes() const;
  /// Offset in bytes of a section in the unit's unsharded buffer.
  [[nodiscard]] std::int64_t unsharded_offset(int section) const;

 private:
  int world_size_ = 1;
  std::vector<ParameterSpec> specs_;
  std::vector<Section> sections_;
  std::vector<std::int64_t> numel_of_;              // per parameter
  std::vector<int> section_of_;                     // per parameter
  std::vector<std::int64_t> offset_of_;             // per parameter
  std::vector<std::int64_t> unsharded_offsets_{0};  // per section, plus the end
};

}  // namespace accordion
