// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "accordion/comm/group_connector.h"

namespace accordion::detail {

/// Whether this build has CUDA (-DACCORDION_CUDA=ON).
[[nodiscard]] bool has_cuda();

/// Joins the CUDA devices of a group, one of each rank: that of its local rank,
/// which becomes the calling thread's current one. `host` joins the ranks
/// themselves, for what lies in the host's memory.
///
/// Throws std::invalid_argument where this host has no such device, or this
///        build no CUDA
GroupConnector nccl_connector(const Rendezvous& rendezvous,
                              const DeviceMeshOptions& options,
                              GroupConnector host);

}  // namespace accordion::detail
