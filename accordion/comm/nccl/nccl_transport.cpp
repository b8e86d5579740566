// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/nccl/nccl_transport.h"

#include <cstdio>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>
#include <nccl.h>

#include "accordion/comm/elements.h"

namespace accordion::detail {

namespace {

using Clock = std::chrono::steady_clock;

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::Float32:
      return ncclFloat32;
    case DType::Bfloat16:
      return ncclBfloat16;
    case DType::Float16:
      return ncclFloat16;
    case DType::Float64:
      return ncclFloat64;
    case DType::Int64:
      return ncclInt64;
    case DType::Int32:
      return ncclInt32;
    case DType::Uint8:
      return ncclUint8;
  }
  throw std::logic_error("[nccl] dtype outside the enumeration");
}

/// Calls never block: NCCL is asked again until it has done what it was given,
/// so that a peer that does not come ends in an error, and another thread can
/// abort.
class NcclTransport final : public Transport {
 public:
  NcclTransport(std::shared_ptr<CudaDevice> device, Communicator& host,
                RankNames names, std::chrono::milliseconds timeout)
      : device_(std::move(device)),
        rank_(host.rank()),
        who_(names.one_of(host.rank(), host.world_size())),
        timeout_(timeout) {
    ncclUniqueId id{};
    if (rank_ == 0) {
      check(ncclGetUniqueId(&id), "to make an id");
    }
    host.broadcast(&id, sizeof(id), /*root=*/0, "NCCL's id");
    const c10::cuda::CUDAGuard guard(index());
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    std::unique_lock lock(mutex_);
    const ncclResult_t begun = ncclCommInitRankConfig(
        &communicator_, host.world_size(), id, rank_, &config);
    settle(lock, begun, "to connect to the other ranks");
  }
  NcclTransport(const NcclTransport&) = delete;
  NcclTransport& operator=(const NcclTransport&) = delete;

  /// Peers may still need what is in flight here.
  ~NcclTransport() override {
    try {
      std::unique_lock lock(mutex_);
      if (communicator_ != nullptr) {
        settle(lock, ncclCommFinalize(communicator_), "to finish");
        (void)ncclCommDestroy(std::exchange(communicator_, nullptr));
      }
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    abort();
  }

  void all_gather(StreamId stream, std::span<const InPlace> parts) override {
    grouped("to gather", [&] {
      for (const InPlace& part : parts) {
        queue(ncclAllGather(piece(part), part.full, count(part),
                            nccl_type(part.dtype), communicator_,
                            device_->stream(stream)),
              "to gather");
      }
    });
  }

  void reduce_scatter(StreamId stream,
                      std::span<const InPlace> parts) override {
    grouped("to reduce and scatter", [&] {
      for (const InPlace& part : parts) {
        queue(ncclReduceScatter(part.full, piece(part), count(part),
                                nccl_type(part.dtype), ncclSum, communicator_,
                                device_->stream(stream)),
              "to reduce and scatter");
      }
    });
  }

  void all_reduce(StreamId stream, std::span<const InPlace> parts) override {
    grouped("to all-reduce", [&] {
      for (const InPlace& part : parts) {
        queue(ncclAllReduce(part.full, part.full, count(part),
                            nccl_type(part.dtype), ncclSum, communicator_,
                            device_->stream(stream)),
              "to all-reduce");
      }
    });
  }

  void broadcast(StreamId stream, void* data, std::int64_t bytes,
                 int root) override {
    grouped("to broadcast", [&] {
      queue(
          ncclBroadcast(data, data, static_cast<std::size_t>(bytes), ncclUint8,
                        root, communicator_, device_->stream(stream)),
          "to broadcast");
    });
  }

  std::optional<std::string> fault() override {
    const std::lock_guard lock(mutex_);
    if (communicator_ == nullptr) {
      return std::nullopt;  // aborted for a reason that is known
    }
    const ncclResult_t state = asynchronous_state();
    if (state == ncclSuccess || state == ncclInProgress) {
      return std::nullopt;
    }
    return describe(state);
  }

  void abort() noexcept override {
    const std::lock_guard lock(mutex_);
    if (communicator_ != nullptr) {
      (void)ncclCommAbort(std::exchange(communicator_, nullptr));
    }
  }

 private:
  [[nodiscard]] c10::DeviceIndex index() const {
    return static_cast<c10::DeviceIndex>(*device_->cuda_device());
  }
  [[nodiscard]] void* piece(const InPlace& part) const {
    return offset(part.full, part.dtype, rank_ * part.numel);
  }
  [[nodiscard]] static std::size_t count(const InPlace& part) {
    return static_cast<std::size_t>(part.numel);
  }

  [[nodiscard]] ncclResult_t asynchronous_state() const {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(communicator_, &state);
    return asked == ncclSuccess ? state : asked;
  }

  [[nodiscard]] std::string describe(ncclResult_t result) const {
    return fmt::format("NCCL reports: {} ({})", ncclGetErrorString(result),
                       ncclGetLastError(communicator_));
  }

  void check(ncclResult_t result, const char* purpose) const {
    if (result != ncclSuccess) {
      throw CommError(fmt::format("[nccl] {} failed {}. {}", who_, purpose,
                                  describe(result)));
    }
  }
  /// Of a call inside a group, which only notes it.
  void queue(ncclResult_t result, const char* purpose) const {
    check(result == ncclInProgress ? ncclSuccess : result, purpose);
  }

  template <class Calls>
  void grouped(const char* purpose, const Calls& calls) {
    const c10::cuda::CUDAGuard guard(index());
    std::unique_lock lock(mutex_);
    if (communicator_ == nullptr) {
      throw CommError(fmt::format(
          "[nccl] {} cannot take part any more: an earlier collective failed",
          who_));
    }
    check(ncclGroupStart(), purpose);
    try {
      calls();
    } catch (...) {
      (void)ncclGroupEnd();
      throw;
    }
    settle(lock, ncclGroupEnd(), purpose);
  }

  /// Waits until NCCL has given its work to the device, which takes longer at a
  /// first call, when it connects to peers. Unlocks while it does nothing.
  void settle(std::unique_lock<std::mutex>& lock, ncclResult_t state,
              const char* purpose) {
    const Clock::time_point end = Clock::now() + timeout_;
    while (state == ncclInProgress) {
      if (Clock::now() > end) {
        (void)ncclCommAbort(std::exchange(communicator_, nullptr));
        throw CommError(fmt::format(
            "[nccl] {} waited {} ms for its peers {}. One died, is late, or "
            "called something else; its own output says which.",
            who_, timeout_.count(), purpose));
      }
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
      if (communicator_ == nullptr) {
        throw CommError(fmt::format("[nccl] {} was aborted {}", who_, purpose));
      }
      state = asynchronous_state();
    }
    check(state, purpose);
  }

  const std::shared_ptr<CudaDevice> device_;
  const int rank_;
  const std::string who_;
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  ncclComm_t communicator_ = nullptr;  // under mutex_; null once it is gone
};

}  // namespace

std::unique_ptr<Transport> connect_nccl(std::shared_ptr<CudaDevice> device,
                                        Communicator& host, RankNames names,
                                        std::chrono::milliseconds timeout) {
  return std::make_unique<NcclTransport>(std::move(device), host,
                                         std::move(names), timeout);
}

}  // namespace accordion::detail
