// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/mesh_grid.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <stdexcept>

namespace accordion::detail {
namespace {

std::string axis_list(const std::vector<MeshAxis>& axes) {
  std::vector<std::string> names;
  for (const MeshAxis& axis : axes) {
    names.push_back(fmt::format("'{}' ({})", axis.name, axis.size));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<MeshAxis> checked_axes(std::vector<MeshAxis> axes, int world_size) {
  if (axes.empty()) {
    axes.push_back({"shard", world_size});
  }
  std::int64_t ranks = 1;
  for (auto axis = axes.begin(); axis != axes.end(); ++axis) {
    const bool twice = std::any_of(
        axes.begin(), axis,
        [&](const MeshAxis& other) { return other.name == axis->name; });
    if (axis->size < 1 || axis->name.empty() || twice) {
      throw std::invalid_argument(fmt::format(
          "[DeviceMesh] axes {}: each needs a name of its own and a size of at "
          "least 1",
          axis_list(axes)));
    }
    ranks *= axis->size;
  }
  if (ranks != world_size) {
    throw std::invalid_argument(fmt::format(
        "[DeviceMesh] axes {} make a mesh of {} ranks, but the world has {}. "
        "Change the sizes, or start {} ranks.",
        axis_list(axes), ranks, world_size, ranks));
  }
  return axes;
}

}  // namespace

MeshGrid::MeshGrid(std::vector<MeshAxis> axes, int rank, int world_size)
    : axes_(checked_axes(std::move(axes), world_size)),
      rank_(rank),
      world_size_(world_size),
      coordinates_(axes_.size()) {
  for (std::size_t axis = axes_.size(); axis-- > 0;) {
    coordinates_[axis] = rank % axes_[axis].size;
    rank /= axes_[axis].size;
  }
}

std::optional<std::size_t> MeshGrid::find(std::string_view name) const {
  const auto place =
      std::find_if(axes_.begin(), axes_.end(),
                   [&](const MeshAxis& axis) { return axis.name == name; });
  return place == axes_.end()
             ? std::nullopt
             : std::optional(static_cast<std::size_t>(place - axes_.begin()));
}

std::size_t MeshGrid::index_of(std::string_view name) const {
  if (const auto index = find(name)) {
    return *index;
  }
  throw std::invalid_argument(
      fmt::format("[DeviceMesh] no axis is named '{}'; the mesh has {}", name,
                  axis_list(axes_)));
}

RankGroup MeshGrid::world() const {
  RankGroup group = {"world", rank_,
                     std::vector<int>(static_cast<std::size_t>(world_size_))};
  std::iota(group.members.begin(), group.members.end(), 0);
  return group;
}

// All ranks with the same coordinates on the other axes give the same name.
RankGroup MeshGrid::along(std::size_t axis) const {
  int stride = 1;
  for (std::size_t inner = axis + 1; inner < axes_.size(); ++inner) {
    stride *= axes_[inner].size;
  }
  const int own = coordinates_[axis];
  RankGroup group = {axes_[axis].name, own, {}};
  for (std::size_t other = 0; other < axes_.size(); ++other) {
    group.name +=
        other == axis ? "/*" : fmt::format("/{}", coordinates_[other]);
  }
  for (int place = 0; place < axes_[axis].size; ++place) {
    group.members.push_back(rank_ + (place - own) * stride);
  }
  return group;
}

RankGroup MeshGrid::neighbours(std::size_t axis, int count) const {
  const MeshAxis& along_axis = axes_[axis];
  if (count < 1 || along_axis.size % count != 0) {
    throw std::invalid_argument(fmt::format(
        "[DeviceMesh] axis '{}' has {} ranks, which cannot be cut into groups "
        "of {}: choose a number that divides {}",
        along_axis.name, along_axis.size, count, along_axis.size));
  }
  RankGroup group = along(axis);
  const int first = group.rank / count * count;
  group.name += fmt::format("[{}, {})", first, first + count);
  group.rank -= first;
  group.members = {group.members.begin() + first,
                   group.members.begin() + first + count};
  return group;
}

}  // namespace accordion::detail
