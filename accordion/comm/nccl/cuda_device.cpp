// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/nccl/cuda_device.h"

#include <algorithm>
#include <string>

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>

#include "accordion/comm/nccl/element_kernels.h"

namespace accordion::detail {

namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

class CudaEvent final : public StreamEvent {
 public:
  /// On the current device.
  CudaEvent() {
    C10_CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
  }
  ~CudaEvent() override { C10_CUDA_CHECK_WARN(cudaEventDestroy(event_)); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  [[nodiscard]] cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

cudaEvent_t native(const StreamEvent& event) {
  return static_cast<const CudaEvent&>(event).get();
}

class RealCudaDevice final : public CudaDevice {
 public:
  explicit RealCudaDevice(int index)
      : index_(static_cast<c10::DeviceIndex>(index)),
        gather_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, index_)),
        reduce_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, index_)) {
    const c10::cuda::CUDAGuard guard(index_);
    partials_ = static_cast<double*>(
        allocator::raw_alloc(cuda::kSquareBlocks * sizeof(double)));
  }
  RealCudaDevice(const RealCudaDevice&) = delete;
  RealCudaDevice& operator=(const RealCudaDevice&) = delete;
  ~RealCudaDevice() override {
    C10_CUDA_CHECK_WARN(cudaStreamSynchronize(reduce_.stream()));
    allocator::raw_delete(partials_);
  }

  cudaStream_t stream(StreamId stream) const override {
    switch (stream) {
      case StreamId::Gather:
        return gather_.stream();
      case StreamId::Reduce:
        return reduce_.stream();
      case StreamId::Caller:
        break;
    }
    return c10::cuda::getCurrentCUDAStream(index_).stream();
  }

  std::optional<int> cuda_device() const override { return index_; }

  bool holds(const void* address) const override {
    cudaPointerAttributes attributes{};
    C10_CUDA_CHECK(cudaPointerGetAttributes(&attributes, address));
    return attributes.type == cudaMemoryTypeDevice &&
           attributes.device == index_;
  }

  std::byte* allocate(std::int64_t bytes, std::string_view label) override {
    const c10::cuda::CUDAGuard guard(index_);
    const auto size =
        static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
    try {
      void* const memory = allocator::raw_alloc(size);
      C10_CUDA_CHECK(
          cudaMemsetAsync(memory, 0, size, stream(StreamId::Caller)));
      return static_cast<std::byte*>(memory);
    } catch (const c10::OutOfMemoryError& error) {
      throw CommError(fmt::format(
          "[nccl] cuda:{} has no {} bytes for {}. Lower prefetch, or shard "
          "over more ranks. {}",
          index_, bytes, label, error.what_without_backtrace()));
    }
  }
  void free(std::byte* memory) noexcept override {
    allocator::raw_delete(memory);
  }

  EventPtr record(StreamId on) override {
    const c10::cuda::CUDAGuard guard(index_);
    auto event = std::make_shared<CudaEvent>();
    C10_CUDA_CHECK(cudaEventRecord(event->get(), stream(on)));
    return event;
  }
  void wait(StreamId on, const StreamEvent& event) override {
    const c10::cuda::CUDAGuard guard(index_);
    C10_CUDA_CHECK(cudaStreamWaitEvent(stream(on), native(event), 0));
  }
  bool reached(const StreamEvent& event) const override {
    const c10::cuda::CUDAGuard guard(index_);
    const cudaError_t result = cudaEventQuery(native(event));
    if (result == cudaErrorNotReady) {
      (void)cudaGetLastError();  // it is no error
      return false;
    }
    return true;  // or broken for good, which the next call of CUDA throws
  }
  void block_until(const StreamEvent& event) noexcept override {
    C10_CUDA_CHECK_WARN(cudaEventSynchronize(native(event)));
  }

  void convert(StreamId on, void* to, DType to_dtype, const void* from,
               DType from_dtype, std::int64_t numel) override {
    const c10::cuda::CUDAGuard guard(index_);
    C10_CUDA_CHECK(
        cuda::convert(to, to_dtype, from, from_dtype, numel, stream(on)));
  }
  /// Partial sums are kept for one call at a time: all are given to one queue.
  void store_sums(StreamId on, const void* sums,
                  const ReducePart& part) override {
    TORCH_INTERNAL_ASSERT(on == StreamId::Reduce);
    const c10::cuda::CUDAGuard guard(index_);
    C10_CUDA_CHECK(cuda::store_sums(sums, part, partials_, stream(on)));
  }

 private:
  const c10::DeviceIndex index_;
  const c10::cuda::CUDAStream gather_;
  const c10::cuda::CUDAStream reduce_;
  double* partials_ = nullptr;  // [kSquareBlocks]
};

}  // namespace

std::shared_ptr<CudaDevice> make_cuda_device(int index) {
  return std::make_shared<RealCudaDevice>(index);
}

}  // namespace accordion::detail
