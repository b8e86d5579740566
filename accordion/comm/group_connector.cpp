// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/group_connector.h"

#include <fmt/format.h>

#include <optional>
#include <stdexcept>

#include "accordion/comm/device_mesh.h"
#include "accordion/comm/fake/fake_communicator.h"
#include "accordion/comm/gloo/gloo_communicator.h"
#include "accordion/comm/rendezvous.h"
#include "accordion/comm/shm/shm_communicator.h"

namespace accordion::detail {
namespace {

GroupConnector shm_connector(const Rendezvous& rendezvous,
                             const DeviceMeshOptions& options) {
  if (rendezvous.local_world_size != rendezvous.world_size) {
    throw std::invalid_argument(fmt::format(
        "[DeviceMesh] backend shm joins the ranks of one host, but only {} of "
        "{} ranks are on this one. Use backend gloo.",
        rendezvous.local_world_size, rendezvous.world_size));
  }
  return [rendezvous, timeout = options.timeout](const RankGroup& group) {
    return connect_shm(
        {.rank = group.rank,
         .world_size = group.size(),
         .name = fmt::format("{}:{}/{}/{}", rendezvous.address, rendezvous.port,
                             rendezvous.run_id, group.name),
         .timeout = timeout});
  };
}

GroupConnector gloo_connector(const Rendezvous& rendezvous,
                              const DeviceMeshOptions& options) {
  std::optional<GlooStore> store;
  if (rendezvous.world_size > 1) {
    store.emplace(rendezvous, options.timeout);
  }
  return [store, timeout = options.timeout, debug_calls = options.debug_calls](
             const RankGroup& group) -> std::shared_ptr<Communicator> {
    if (!store) {
      return make_lone_communicator("gloo", timeout);
    }
    return connect_gloo(*store, {.rank = group.rank,
                                 .world_size = group.size(),
                                 .name = group.name,
                                 .timeout = timeout,
                                 .debug_calls = debug_calls});
  };
}

}  // namespace

GroupConnector make_group_connector(const Rendezvous& rendezvous,
                                    const DeviceMeshOptions& options) {
  if (options.backend == "shm") {
    return shm_connector(rendezvous, options);
  }
  if (options.backend == "gloo") {
    return gloo_connector(rendezvous, options);
  }
  if (options.backend == "fake") {
    return [](const RankGroup& group) {
      return make_fake_communicator(group.rank, group.size());
    };
  }
  throw std::invalid_argument(
      fmt::format("[DeviceMesh] no backend is named '{}'; there are 'shm', "
                  "'gloo' and 'fake'",
                  options.backend));
}

}  // namespace accordion::detail
