// SPDX-License-Identifier: BSD-3-Clause
// Takes the place of nccl_groups.cpp in builds without CUDA.
#include <stdexcept>

#include "accordion/comm/nccl/nccl_groups.h"

namespace accordion::detail {

bool has_cuda() {
  return false;
}

GroupConnector nccl_connector(const Rendezvous& /*rendezvous*/,
                              const DeviceMeshOptions& /*options*/,
                              GroupConnector /*host*/) {
  throw std::invalid_argument(
      "[DeviceMesh] backend nccl: this build of Accordion has no CUDA; "
      "configure it with -DACCORDION_CUDA=ON (docs/gpu.md).");
}

}  // namespace accordion::detail
