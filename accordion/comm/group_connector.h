// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <memory>

#include "accordion/comm/communicator.h"
#include "accordion/comm/mesh_grid.h"

namespace accordion {

struct DeviceMeshOptions;
struct Rendezvous;

namespace detail {

/// Makes the communicator of a group that this rank belongs to. Collective
/// among the group's members.
using GroupConnector =
    std::function<std::shared_ptr<Communicator>(const RankGroup& group)>;

/// The connector of options.backend.
///
/// Comm   connects all ranks to rank 0 where the backend needs it
/// Throws std::invalid_argument for an unknown backend, or one that cannot join
///        these ranks
GroupConnector make_group_connector(const Rendezvous& rendezvous,
                                    const DeviceMeshOptions& options);

}  // namespace detail
}  // namespace accordion
