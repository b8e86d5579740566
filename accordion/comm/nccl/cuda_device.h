// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include <cuda_runtime_api.h>

#include "accordion/comm/streams/stream_device.h"

namespace accordion::detail {

/// A CUDA device with two streams of its own, of high priority, and LibTorch's
/// current one. Memory comes from LibTorch's caching allocator, so that both
/// draw on one pool.
class CudaDevice : public StreamDevice {
 public:
  [[nodiscard]] virtual cudaStream_t stream(StreamId stream) const = 0;
};

/// Throws c10::Error where there is no such device.
std::shared_ptr<CudaDevice> make_cuda_device(int index);

}  // namespace accordion::detail
