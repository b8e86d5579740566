// SPDX-License-Identifier: BSD-3-Clause
// NCCL in a group of one rank, which is all that one GPU allows: that its calls
// are made, in place and on the right streams; nothing of several ranks.
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include "accordion/comm/fake/fake_communicator.h"
#include "accordion/comm/nccl/nccl_transport.h"
#include "accordion/comm/streams/streamed_communicator.h"
#include "tests/gpu/gpu_support.h"

namespace accordion {
namespace {

class Nccl : public testing::OnGpu {
 protected:
  static std::unique_ptr<Communicator> connect() {
    const auto device = detail::make_cuda_device(0);
    std::shared_ptr<Communicator> host =
        make_lone_communicator("none", std::chrono::minutes(1));
    auto transport = detail::connect_nccl(device, *host, detail::RankNames(),
                                          std::chrono::minutes(1));
    return detail::make_streamed_communicator(device, std::move(transport),
                                              host, {});
  }
};

TEST_F(Nccl, GathersAndReducesInPlace) {
  const auto communicator = connect();
  const at::Tensor shard =
      at::arange(1000, at::device(at::kCUDA)).to(at::kFloat);
  const auto slot = communicator->allocate_common(4000, "slot");
  const GatherPart gather = {shard.const_data_ptr(), DType::Float32,
                             slot->data(), DType::Float32, 1000};
  for (int use = 0; use < 3; ++use) {
    communicator->follow_caller();
    communicator->all_gather_into({&gather, 1}, slot.get(), "unit").wait();
    communicator->release(*slot);
  }
  const at::Tensor local = at::zeros({1000}, shard.options());
  const at::Tensor squares = at::zeros({1}, shard.options().dtype(at::kDouble));
  const ReducePart reduce = {
      .full = slot->data(),
      .full_dtype = DType::Float32,
      .local = local.mutable_data_ptr(),
      .local_dtype = DType::Float32,
      .reduce_dtype = DType::Float32,
      .numel = 1000,
      .scale = 2.0,
      .sum_of_squares = squares.mutable_data_ptr<double>()};
  communicator->reduce_scatter_into({&reduce, 1}, slot.get(), "unit").wait();
  EXPECT_TRUE(local.equal(shard * 2));
  EXPECT_DOUBLE_EQ(squares.item<double>(), 4 * 332833500.0);
  communicator->all_reduce({&reduce, 1}, slot.get(), "unit").wait();
  EXPECT_TRUE(local.equal(shard * 2));
  communicator->broadcast(local.mutable_data_ptr(), 4000, 0, "unit");
  EXPECT_TRUE(local.equal(shard * 2));
}

TEST_F(Nccl, AbandonedCommunicatorsRefuse) {
  const auto communicator = connect();
  const at::Tensor values = at::zeros({8}, at::device(at::kCUDA));
  communicator->abandon("the test is over");
  EXPECT_THROW(communicator->broadcast(values.mutable_data_ptr(), 32, 0, "x"),
               CommError);
}

}  // namespace
}  // namespace accordion
