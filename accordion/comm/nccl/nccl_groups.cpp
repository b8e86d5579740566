// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/nccl/nccl_groups.h"

#include <stdexcept>
#include <utility>

#include <c10/cuda/CUDAFunctions.h>
#include <fmt/format.h>

#include "accordion/comm/device_mesh.h"
#include "accordion/comm/nccl/nccl_transport.h"
#include "accordion/comm/streams/streamed_communicator.h"

namespace accordion::detail {

bool has_cuda() {
  return true;
}

GroupConnector nccl_connector(const Rendezvous& rendezvous,
                              const DeviceMeshOptions& options,
                              GroupConnector host) {
  const int devices = c10::cuda::device_count();
  if (rendezvous.local_rank >= devices) {
    throw std::invalid_argument(fmt::format(
        "[DeviceMesh] backend nccl: rank {} is number {} of this host, which "
        "has {} CUDA devices to use (CUDA_VISIBLE_DEVICES limits them). Start "
        "one rank a device.",
        rendezvous.rank, rendezvous.local_rank, devices));
  }
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(rendezvous.local_rank));
  return
      [device = make_cuda_device(rendezvous.local_rank), host = std::move(host),
       timeout = options.timeout, debug_calls = options.debug_calls](
          const RankGroup& group) -> std::shared_ptr<Communicator> {
        std::shared_ptr<Communicator> on_host = host(group);
        std::unique_ptr<Transport> transport;
        if (group.size() == 1) {
          transport = std::make_unique<LoneTransport>();
        } else {
          transport =
              connect_nccl(device, *on_host, RankNames(group.members), timeout);
        }
        return make_streamed_communicator(device, std::move(transport),
                                          std::move(on_host),
                                          {.timeout = timeout,
                                           .debug_calls = debug_calls,
                                           .members = group.members});
      };
}

}  // namespace accordion::detail
