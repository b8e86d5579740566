// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <memory>

#include "accordion/comm/communicator.h"
#include "accordion/comm/nccl/cuda_device.h"
#include "accordion/comm/rank_names.h"
#include "accordion/comm/streams/transport.h"

namespace accordion::detail {

/// NCCL among the ranks of `host`, over which they meet.
///
/// One NCCL communicator serves both queues of a group: NCCL does its calls in
/// the order in which they were made, on whatever stream, so that no two of its
/// kernels can wait for each other on different ranks.
///
/// Comm    one broadcast over `host`, and NCCL's own connections
/// Throws  CommError when a peer does not come within `timeout`
std::unique_ptr<Transport> connect_nccl(std::shared_ptr<CudaDevice> device,
                                        Communicator& host, RankNames names,
                                        std::chrono::milliseconds timeout);

}  // namespace accordion::detail
