// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace accordion {

/// One direction of a mesh and its number of ranks.
struct MeshAxis {
  std::string name;  ///< "shard", "replicate", …
  int size = 1;
};

namespace detail {

/// The ranks that one communicator joins, as one of them sees it.
struct RankGroup {
  std::string name;          ///< alike on all members, of no other group
  int rank = 0;              ///< of this member within the group
  std::vector<int> members;  ///< ranks of the mesh, by rank within the group

  [[nodiscard]] int size() const { return static_cast<int>(members.size()); }
};

/// Where one rank lies in a mesh, and with whom it forms groups. Arithmetic
/// only: nothing is connected here.
class MeshGrid {
 public:
  /// `axes` from the outermost to the innermost, along which ranks are
  /// consecutive. None: one axis "shard" over all ranks.
  ///
  /// Throws std::invalid_argument unless the axes have names of their own and
  ///        sizes that multiply to `world_size`
  MeshGrid(std::vector<MeshAxis> axes, int rank, int world_size);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] const std::vector<MeshAxis>& axes() const { return axes_; }
  [[nodiscard]] int coordinate(std::size_t axis) const {
    return coordinates_[axis];
  }
  /// Index of the axis of that name.
  [[nodiscard]] std::optional<std::size_t> find(std::string_view name) const;
  /// The same where there must be one. Throws std::invalid_argument that lists
  /// the axes.
  [[nodiscard]] std::size_t index_of(std::string_view name) const;

  /// All ranks.
  [[nodiscard]] RankGroup world() const;
  /// The ranks that differ from this one only along `axis`.
  [[nodiscard]] RankGroup along(std::size_t axis) const;
  /// Those of them in the same block of `count` consecutive ones.
  /// Throws std::invalid_argument unless `count` divides the axis' size.
  [[nodiscard]] RankGroup neighbours(std::size_t axis, int count) const;

 private:
  std::vector<MeshAxis> axes_;
  int rank_;
  int world_size_;
  std::vector<int> coordinates_;  // by axis
};

}  // namespace detail
}  // namespace accordion
