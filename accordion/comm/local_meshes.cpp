// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/local_meshes.h"

#include <map>
#include <mutex>

#include "accordion/comm/group_connector.h"
#include "accordion/comm/shm/shm_communicator.h"

namespace accordion {
namespace {

// Where ranks that are threads meet: the first to ask for a group makes all of
// its communicators, the others find theirs.
class LocalGroups {
 public:
  explicit LocalGroups(std::chrono::milliseconds timeout) : timeout_(timeout) {}

  std::shared_ptr<Communicator> take(const detail::RankGroup& group) {
    const std::lock_guard lock(mutex_);
    auto& ranks = groups_[group.name];
    if (ranks.empty()) {
      ranks = make_local_shm_group(group.size(), timeout_);
    }
    return std::move(ranks[static_cast<std::size_t>(group.rank)]);
  }

 private:
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  // By group and rank within it; null once taken. Under mutex_.
  std::map<std::string, std::vector<std::unique_ptr<Communicator>>> groups_;
};

int num_ranks(const std::vector<MeshAxis>& axes) {
  int ranks = 1;
  for (const MeshAxis& axis : axes) {
    ranks *= axis.size;
  }
  return ranks;
}

}  // namespace

std::vector<DeviceMesh> make_local_meshes(std::vector<MeshAxis> axes,
                                          std::chrono::milliseconds timeout) {
  const auto groups = std::make_shared<LocalGroups>(timeout);
  const int world_size = num_ranks(axes);
  std::vector<DeviceMesh> meshes;
  for (int rank = 0; rank == 0 || rank < world_size; ++rank) {
    meshes.push_back(DeviceMesh(detail::MeshGrid(axes, rank, world_size),
                                [groups](const detail::RankGroup& group) {
                                  return groups->take(group);
                                }));
  }
  return meshes;
}

}  // namespace accordion
