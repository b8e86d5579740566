// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/device_mesh.h"

#include <fmt/format.h>

#include <map>
#include <stdexcept>

#include "accordion/comm/fake/fake_communicator.h"

namespace accordion {

struct DeviceMesh::State {
  detail::MeshGrid grid;
  detail::GroupConnector connect;  // empty for a mesh over a communicator
  std::shared_ptr<Communicator> world;
  std::vector<std::shared_ptr<Communicator>> communicators;  // by axis
  // By axis and number of ranks; those asked for so far.
  std::map<std::pair<std::size_t, int>, std::shared_ptr<Communicator>>
      neighbours = {};
  int next_number = 0;
};

DeviceMesh::DeviceMesh(std::shared_ptr<State> state)
    : state_(std::move(state)) {}

DeviceMesh::DeviceMesh(detail::MeshGrid grid, detail::GroupConnector connect) {
  std::shared_ptr<Communicator> world = connect(grid.world());
  std::vector<std::shared_ptr<Communicator>> communicators;
  for (std::size_t axis = 0; axis < grid.axes().size(); ++axis) {
    communicators.push_back(grid.axes()[axis].size == world->world_size()
                                ? world
                                : connect(grid.along(axis)));
  }
  state_ = std::make_shared<State>(State{std::move(grid), std::move(connect),
                                         std::move(world),
                                         std::move(communicators)});
}

DeviceMesh DeviceMesh::from_environment(const DeviceMeshOptions& options) {
  return connect(Rendezvous::from_environment(), options);
}

DeviceMesh DeviceMesh::connect(const Rendezvous& rendezvous,
                               const DeviceMeshOptions& options) {
  detail::MeshGrid grid(options.axes, rendezvous.rank, rendezvous.world_size);
  return {std::move(grid), detail::make_group_connector(rendezvous, options)};
}

DeviceMesh DeviceMesh::over(std::shared_ptr<Communicator> communicator,
                            std::string axis) {
  const int size = communicator->world_size();
  detail::MeshGrid grid({{std::move(axis), size}}, communicator->rank(), size);
  return DeviceMesh(std::make_shared<State>(
      State{std::move(grid), {}, communicator, {communicator}}));
}

int DeviceMesh::rank() const {
  return state_->grid.rank();
}

int DeviceMesh::world_size() const {
  return state_->world->world_size();
}

const std::vector<MeshAxis>& DeviceMesh::axes() const {
  return state_->grid.axes();
}

bool DeviceMesh::has_axis(std::string_view axis) const {
  return state_->grid.find(axis).has_value();
}

int DeviceMesh::size(std::string_view axis) const {
  const auto index = state_->grid.find(axis);
  return index ? axes()[*index].size : 1;
}

int DeviceMesh::coordinate(std::string_view axis) const {
  const auto index = state_->grid.find(axis);
  return index ? state_->grid.coordinate(*index) : 0;
}

Communicator& DeviceMesh::communicator(std::string_view axis) const {
  return *shared_communicator(axis);
}

std::shared_ptr<Communicator> DeviceMesh::shared_communicator(
    std::string_view axis) const {
  return state_->communicators[state_->grid.index_of(axis)];
}

std::shared_ptr<Communicator> DeviceMesh::neighbours(std::string_view axis,
                                                     int count) const {
  const std::size_t index = state_->grid.index_of(axis);
  const detail::RankGroup group = state_->grid.neighbours(index, count);
  const std::shared_ptr<Communicator>& all = state_->communicators[index];
  if (count == all->world_size()) {
    return all;
  }
  std::shared_ptr<Communicator>& found = state_->neighbours[{index, count}];
  if (found) {
    return found;
  }
  if (count == 1) {
    found = make_lone_communicator(all->backend(), all->timeout());
  } else if (state_->connect) {
    found = state_->connect(group);
  } else {
    throw std::invalid_argument(fmt::format(
        "[DeviceMesh] a mesh over one communicator of {} ranks has no groups "
        "of {} neighbours: make it with make_local_meshes or "
        "DeviceMesh::connect",
        all->world_size(), count));
  }
  return found;
}

Communicator& DeviceMesh::world() const {
  return *state_->world;
}

int DeviceMesh::take_number() const {
  return state_->next_number++;
}

}  // namespace accordion
