// SPDX-License-Identifier: BSD-3-Clause
// Kernels and streams against the host's arithmetic.
#include <array>
#include <cmath>
#include <tuple>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "accordion/comm/elements.h"
#include "accordion/comm/nccl/cuda_device.h"
#include "accordion/comm/part_reducer.h"
#include "accordion/fsdp/scalar_type.h"
#include "tests/gpu/gpu_support.h"

namespace accordion {
namespace {

using detail::StreamId;

constexpr std::array kFloating = {DType::Float32, DType::Bfloat16,
                                  DType::Float16, DType::Float64};
constexpr std::array<std::int64_t, 5> kNumels = {0, 1, 255, 256, 300001};

at::Tensor host_values(DType dtype, std::int64_t numel) {
  return at::randn({numel}, at::kDouble).to(to_scalar_type(dtype));
}

class GpuKernels : public testing::OnGpu {
 protected:
  std::shared_ptr<detail::CudaDevice> device() {
    if (!device_) {
      device_ = detail::make_cuda_device(0);
    }
    return device_;
  }
  /// The stream's result, on the host.
  at::Tensor finished(StreamId stream, const at::Tensor& tensor) {
    device()->wait(StreamId::Caller, *device()->record(stream));
    return tensor.cpu();
  }
  /// What the caller's queue has made is there for the stream.
  void begin(StreamId stream) {
    device()->wait(stream, *device()->record(StreamId::Caller));
  }

 private:
  std::shared_ptr<detail::CudaDevice> device_;
};

TEST_F(GpuKernels, ConvertsToTheBitsOfTheHost) {
  for (const DType from : kFloating) {
    for (const DType to : kFloating) {
      for (const std::int64_t numel : kNumels) {
        const at::Tensor values = host_values(from, numel);
        const at::Tensor expected = at::empty({numel}, to_scalar_type(to));
        detail::convert(expected.mutable_data_ptr(), to,
                        values.const_data_ptr(), from, numel);
        const at::Tensor source = values.cuda();
        const at::Tensor result =
            at::empty({numel}, expected.options().device(at::kCUDA));
        begin(StreamId::Gather);
        device()->convert(StreamId::Gather, result.mutable_data_ptr(), to,
                          source.const_data_ptr(), from, numel);
        EXPECT_TRUE(finished(StreamId::Gather, result).equal(expected))
            << name(from) << " to " << name(to) << ", " << numel;
      }
    }
  }
}

/// What `store` makes of `before`, and of where `squares` is.
template <class Store>
at::Tensor stored(const at::Tensor& sums, const at::Tensor& before,
                  const at::Tensor& squares, ReducePart part,
                  const Store& store) {
  at::Tensor local = before.clone();
  part.full = sums.const_data_ptr();
  part.local = local.mutable_data_ptr();
  part.sum_of_squares = squares.mutable_data_ptr<double>();
  store(part);
  return local;
}

TEST_F(GpuKernels, StoresSumsToTheBitsOfTheHost) {
  for (const DType wire : kFloating) {
    for (const DType local : {DType::Float32, DType::Bfloat16}) {
      for (const bool accumulate : {false, true}) {
        for (const std::int64_t numel : kNumels) {
          const at::Tensor sums = host_values(wire, numel);
          const at::Tensor before = host_values(local, numel);
          const ReducePart part = {.full = nullptr,
                                   .full_dtype = wire,
                                   .local = nullptr,
                                   .local_dtype = local,
                                   .reduce_dtype = DType::Float32,
                                   .numel = numel,
                                   .scale = 0.375,
                                   .accumulate = accumulate};
          const at::Tensor squares = at::zeros({1}, at::kDouble);
          const at::Tensor expected =
              stored(sums, before, squares, part, [&](const ReducePart& p) {
                detail::reduce(std::array{p.full}, p);
              });
          const at::Tensor on_device =
              at::zeros({1}, at::device(at::kCUDA).dtype(at::kDouble));
          const at::Tensor source = sums.cuda();
          const at::Tensor got = stored(
              source, before.cuda(), on_device, part, [&](const ReducePart& p) {
                begin(StreamId::Reduce);
                device()->store_sums(StreamId::Reduce, p.full, p);
              });
          EXPECT_TRUE(finished(StreamId::Reduce, got).equal(expected))
              << name(wire) << " to " << name(local) << ", " << numel
              << (accumulate ? ", added" : "");
          const double want = squares.item<double>();
          EXPECT_NEAR(on_device.item<double>(), want, 1e-9 * want);
        }
      }
    }
  }
}

TEST_F(GpuKernels, SumsOfSquaresRepeatBitForBit) {
  const at::Tensor sums = host_values(DType::Float32, 1 << 22).cuda();
  const at::Tensor local = at::empty_like(sums);
  std::vector<double> results;
  for (int i = 0; i < 3; ++i) {
    const at::Tensor squares =
        at::zeros({1}, at::device(at::kCUDA).dtype(at::kDouble));
    begin(StreamId::Reduce);
    device()->store_sums(
        StreamId::Reduce, sums.const_data_ptr(),
        {.full = sums.const_data_ptr(),
         .full_dtype = DType::Float32,
         .local = local.mutable_data_ptr(),
         .local_dtype = DType::Float32,
         .reduce_dtype = DType::Float32,
         .numel = sums.numel(),
         .sum_of_squares = squares.mutable_data_ptr<double>()});
    results.push_back(finished(StreamId::Reduce, squares).item<double>());
  }
  EXPECT_EQ(results, std::vector<double>(3, results[0]));
  EXPECT_GT(results[0], 0);
}

TEST_F(GpuKernels, KnowsItsMemory) {
  const at::Tensor on_device = at::zeros({4}, at::kCUDA);
  const at::Tensor on_host = at::zeros({4});
  EXPECT_TRUE(device()->holds(on_device.const_data_ptr()));
  EXPECT_FALSE(device()->holds(on_host.const_data_ptr()));
}

}  // namespace
}  // namespace accordion
