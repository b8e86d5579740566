// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/group_connector.h"

#include <fmt/format.h>

#include <stdexcept>

#include "accordion/comm/device_mesh.h"
#include "accordion/comm/fake/fake_communicator.h"
#include "accordion/comm/gloo/gloo_communicator.h"
#include "accordion/comm/hierarchical/hierarchical_communicator.h"
#include "accordion/comm/hierarchical/host_layout.h"
#include "accordion/comm/nccl/nccl_groups.h"
#include "accordion/comm/rank_names.h"
#include "accordion/comm/rendezvous.h"
#include "accordion/comm/shm/shm_communicator.h"

namespace accordion::detail {
namespace {

class ShmGroups {
 public:
  ShmGroups(const Rendezvous& rendezvous, std::chrono::milliseconds timeout)
      : job_(fmt::format("{}:{}/{}", rendezvous.address, rendezvous.port,
                         rendezvous.run_id)),
        timeout_(timeout) {}

  std::unique_ptr<Communicator> operator()(
      const RankGroup& group, std::chrono::milliseconds patience = {}) const {
    return connect_shm({.rank = group.rank,
                        .world_size = group.size(),
                        .name = job_ + "/" + group.name,
                        .timeout = timeout_ + patience,
                        .members = group.members});
  }

 private:
  std::string job_;
  std::chrono::milliseconds timeout_;
};

class GlooGroups {
 public:
  GlooGroups(GlooStore store, const DeviceMeshOptions& options)
      : store_(std::move(store)),
        timeout_(options.timeout),
        debug_calls_(options.debug_calls) {}

  std::unique_ptr<Communicator> operator()(const RankGroup& group) const {
    return connect_gloo(store_, {.rank = group.rank,
                                 .world_size = group.size(),
                                 .name = group.name,
                                 .timeout = timeout_,
                                 .debug_calls = debug_calls_,
                                 .members = group.members});
  }

 private:
  GlooStore store_;
  std::chrono::milliseconds timeout_;
  bool debug_calls_;
};

// How much longer a rank waits for the ranks of its host than for other hosts:
// a neighbour that another host keeps waiting says so when its own wait is
// over, and names that host. With one timeout for both, who was named was a
// matter of microseconds.
constexpr std::chrono::milliseconds kNeighbourPatience{1000};

// Joins each group by where its ranks are.
class HostGroups {
 public:
  HostGroups(std::vector<int> host_of_rank, ShmGroups shm, GlooGroups gloo,
             bool even_only)
      : host_of_rank_(std::move(host_of_rank)),
        shm_(std::move(shm)),
        gloo_(std::move(gloo)),
        even_only_(even_only) {}

  std::unique_ptr<Communicator> operator()(const RankGroup& group) const {
    switch (layout_of(group, host_of_rank_)) {
      case HostLayout::OneHost:
        return shm_(group);
      case HostLayout::HostEach:
        return gloo_(group);
      case HostLayout::Blocks: {
        HostLink gathers = link(group, "gathers");
        return make_hierarchical_communicator(
            std::move(gathers), link(group, "others"), group.members);
      }
      case HostLayout::Uneven:
        break;
    }
    if (even_only_) {
      throw std::invalid_argument(fmt::format(
          "[DeviceMesh] backend hierarchical needs equally many consecutive "
          "ranks of group '{}' on each host, but it has {}. Place ranks host "
          "by "
          "host (mpirun --map-by slot, srun --distribution=block), or use "
          "backend auto or gloo.",
          group.name, describe_hosts(group, host_of_rank_)));
    }
    return gloo_(group);
  }

 private:
  HostLink link(const RankGroup& group, std::string_view purpose) const {
    const HostSplit split = split_by_host(group, host_of_rank_, purpose);
    HostLink result;
    result.local = shm_(split.local, kNeighbourPatience);
    result.between = gloo_(split.between);
    return result;
  }

  std::vector<int> host_of_rank_;
  ShmGroups shm_;
  GlooGroups gloo_;
  bool even_only_;
};

GroupConnector shm_connector(const Rendezvous& rendezvous,
                             const DeviceMeshOptions& options) {
  if (rendezvous.local_world_size != rendezvous.world_size) {
    throw std::invalid_argument(fmt::format(
        "[DeviceMesh] backend shm joins the ranks of one host, but only {} of "
        "{} ranks are on this one. Use backend auto.",
        rendezvous.local_world_size, rendezvous.world_size));
  }
  return ShmGroups(rendezvous, options.timeout);
}

GlooStore connect_store(Rendezvous rendezvous,
                        const DeviceMeshOptions& options) {
  if (!options.interface.empty()) {
    rendezvous.network_interface = options.interface;
  }
  return {rendezvous, options.timeout};
}

GroupConnector gloo_connector(const Rendezvous& rendezvous,
                              const DeviceMeshOptions& options) {
  if (rendezvous.world_size == 1) {
    return [timeout = options.timeout](const RankGroup&) {
      return make_lone_communicator("gloo", timeout);
    };
  }
  return GlooGroups(connect_store(rendezvous, options), options);
}

// Ranks that their launcher put on one host need no store to find each other.
GroupConnector host_connector(const Rendezvous& rendezvous,
                              const DeviceMeshOptions& options) {
  if (rendezvous.local_world_size == rendezvous.world_size) {
    return shm_connector(rendezvous, options);
  }
  const GlooStore store = connect_store(rendezvous, options);
  const std::vector<std::string> identities =
      store.exchange("host", host_of(rendezvous), rendezvous.rank, RankNames(),
                     rendezvous.world_size);
  return HostGroups(
      number_hosts(identities), ShmGroups(rendezvous, options.timeout),
      GlooGroups(store, options), options.backend == "hierarchical");
}

}  // namespace

GroupConnector make_group_connector(const Rendezvous& rendezvous,
                                    const DeviceMeshOptions& options) {
  if (options.backend == "auto" || options.backend == "hierarchical") {
    return host_connector(rendezvous, options);
  }
  if (options.backend == "shm") {
    return shm_connector(rendezvous, options);
  }
  if (options.backend == "gloo") {
    return gloo_connector(rendezvous, options);
  }
  if (options.backend == "nccl") {
    if (!has_cuda()) {
      return nccl_connector(rendezvous, options, {});  // says so
    }
    return nccl_connector(rendezvous, options,
                          host_connector(rendezvous, options));
  }
  if (options.backend == "fake") {
    return [](const RankGroup& group) {
      return make_fake_communicator(group.rank, group.size());
    };
  }
  if (options.backend == "meta") {
    return [](const RankGroup& group) {
      return make_meta_communicator(group.rank, group.size());
    };
  }
  throw std::invalid_argument(
      fmt::format("[DeviceMesh] no backend is named '{}'; there are 'auto', "
                  "'shm', 'gloo', 'hierarchical', 'nccl', 'fake' and 'meta'",
                  options.backend));
}

}  // namespace accordion::detail
