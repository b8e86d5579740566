// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/device_mesh.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <stdexcept>

#include "accordion/comm/fake/fake_communicator.h"
#include "accordion/comm/gloo/gloo_communicator.h"
#include "accordion/comm/shm/shm_communicator.h"

namespace accordion {

struct DeviceMesh::State {
  int rank = 0;
  std::vector<MeshAxis> axes;
  std::vector<int> coordinates;  // of this rank, by axis
  std::shared_ptr<Communicator> world;
  std::vector<std::shared_ptr<Communicator>> communicators;  // by axis

  [[nodiscard]] std::optional<std::size_t> find(std::string_view axis) const {
    const auto place =
        std::find_if(axes.begin(), axes.end(),
                     [&](const MeshAxis& other) { return other.name == axis; });
    return place == axes.end()
               ? std::nullopt
               : std::optional(static_cast<std::size_t>(place - axes.begin()));
  }
};

namespace {

// The ranks that one communicator joins, as seen by this rank.
struct Group {
  std::string name;
  int rank;
  int size;
};
using Connect =
    std::function<std::shared_ptr<Communicator>(const Group& group)>;

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

Connect shm_connector(const Rendezvous& rendezvous,
                      const DeviceMeshOptions& options) {
  if (rendezvous.local_world_size != rendezvous.world_size) {
    throw std::invalid_argument(fmt::format(
        "[DeviceMesh] backend shm joins the ranks of one host, but only {} of "
        "{} ranks are on this one. Use backend gloo.",
        rendezvous.local_world_size, rendezvous.world_size));
  }
  return [rendezvous, options](const Group& group) {
    return connect_shm(
        {.rank = group.rank,
         .world_size = group.size,
         .name = fmt::format("{}:{}/{}/{}", rendezvous.address, rendezvous.port,
                             rendezvous.run_id, group.name),
         .timeout = options.timeout});
  };
}

Connect gloo_connector(const Rendezvous& rendezvous,
                       const DeviceMeshOptions& options) {
  std::optional<GlooStore> store;
  if (rendezvous.world_size > 1) {
    store.emplace(rendezvous, options.timeout);
  }
  return [store, options](const Group& group) -> std::shared_ptr<Communicator> {
    if (!store) {
      return make_lone_communicator("gloo", options.timeout);
    }
    return connect_gloo(*store, {.rank = group.rank,
                                 .world_size = group.size,
                                 .name = group.name,
                                 .timeout = options.timeout,
                                 .debug_calls = options.debug_calls});
  };
}

Connect connector(const Rendezvous& rendezvous,
                  const DeviceMeshOptions& options) {
  if (options.backend == "shm") {
    return shm_connector(rendezvous, options);
  }
  if (options.backend == "gloo") {
    return gloo_connector(rendezvous, options);
  }
  if (options.backend == "fake") {
    return [](const Group& group) {
      return make_fake_communicator(group.rank, group.size);
    };
  }
  throw std::invalid_argument(
      fmt::format("[DeviceMesh] no backend is named '{}'; there are 'shm', "
                  "'gloo' and 'fake'",
                  options.backend));
}

// Position of a rank in a grid whose last axis varies fastest.
std::vector<int> coordinates_of(int rank, const std::vector<MeshAxis>& axes) {
  std::vector<int> coordinates(axes.size());
  for (std::size_t axis = axes.size(); axis-- > 0;) {
    coordinates[axis] = rank % axes[axis].size;
    rank /= axes[axis].size;
  }
  return coordinates;
}

// All ranks with the same coordinates on the other axes give the same name.
Group group_along(std::size_t axis, const std::vector<MeshAxis>& axes,
                  std::vector<int> coordinates) {
  const int own = std::exchange(coordinates[axis], -1);
  return {fmt::format("{}/{}", axes[axis].name, fmt::join(coordinates, ",")),
          own, axes[axis].size};
}

}  // namespace

DeviceMesh::DeviceMesh(std::shared_ptr<const State> state)
    : state_(std::move(state)) {}

DeviceMesh DeviceMesh::from_environment(const DeviceMeshOptions& options) {
  return connect(Rendezvous::from_environment(), options);
}

DeviceMesh DeviceMesh::connect(const Rendezvous& rendezvous,
                               const DeviceMeshOptions& options) {
  auto state = std::make_shared<State>();
  state->rank = rendezvous.rank;
  state->axes = checked_axes(options.axes, rendezvous.world_size);
  state->coordinates = coordinates_of(rendezvous.rank, state->axes);
  const Connect connect = connector(rendezvous, options);
  state->world = connect({"world", rendezvous.rank, rendezvous.world_size});
  for (std::size_t axis = 0; axis < state->axes.size(); ++axis) {
    state->communicators.push_back(
        state->axes[axis].size == rendezvous.world_size
            ? state->world
            : connect(group_along(axis, state->axes, state->coordinates)));
  }
  return DeviceMesh(std::move(state));
}

DeviceMesh DeviceMesh::over(std::shared_ptr<Communicator> communicator,
                            std::string axis) {
  auto state = std::make_shared<State>();
  state->rank = communicator->rank();
  state->axes = {{std::move(axis), communicator->world_size()}};
  state->coordinates = {communicator->rank()};
  state->world = communicator;
  state->communicators = {std::move(communicator)};
  return DeviceMesh(std::move(state));
}

int DeviceMesh::rank() const {
  return state_->rank;
}

int DeviceMesh::world_size() const {
  return state_->world->world_size();
}

const std::vector<MeshAxis>& DeviceMesh::axes() const {
  return state_->axes;
}

bool DeviceMesh::has_axis(std::string_view axis) const {
  return state_->find(axis).has_value();
}

int DeviceMesh::size(std::string_view axis) const {
  const auto place = state_->find(axis);
  return place ? state_->axes[*place].size : 1;
}

int DeviceMesh::coordinate(std::string_view axis) const {
  const auto place = state_->find(axis);
  return place ? state_->coordinates[*place] : 0;
}

Communicator& DeviceMesh::communicator(std::string_view axis) const {
  if (const auto place = state_->find(axis)) {
    return *state_->communicators[*place];
  }
  throw std::invalid_argument(
      fmt::format("[DeviceMesh] no axis is named '{}'; the mesh has {}", axis,
                  axis_list(state_->axes)));
}

Communicator& DeviceMesh::world() const {
  return *state_->world;
}

}  // namespace accordion
