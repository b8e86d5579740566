// SPDX-License-Identifier: BSD-3-Clause
// param_dtype, reduce_dtype, output_dtype, cast_forward_inputs.
#include <torch/nn/modules/linear.h>

#include "accordion/fsdp/controls.h"
#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "tests/fsdp/models.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using testing::on_ranks;

/// Multiplies by its weight and tells in which dtypes it did.
struct ProbeImpl : torch::nn::Module {
  ProbeImpl() {
    weight = register_parameter("weight", torch::linspace(0.1, 1.9, 19));
  }
  torch::Tensor forward(torch::Tensor x) {
    input_dtype = x.scalar_type();
    weight_dtype = weight.scalar_type();
    seen = weight.detach().clone();
    return x.to(weight_dtype) * weight;
  }
  torch::Tensor weight, seen;
  torch::Dtype input_dtype{}, weight_dtype{};
};
TORCH_MODULE(Probe);

constexpr auto kBf16 = torch::kBFloat16;
constexpr auto kFp16 = torch::kHalf;
constexpr auto kFp32 = torch::kFloat;

void expect_computes_in(torch::Dtype dtype, Strategy strategy) {
  on_ranks(2, [dtype, strategy](const DeviceMesh& mesh) {
    Unit<Probe> net;
    const auto master = net->weight.detach().clone();
    fully_shard(net, mesh,
                {.strategy = strategy, .precision = {.param_dtype = dtype}});
    const auto y = net(torch::ones({19}));
    EXPECT_EQ(net->weight_dtype, dtype);
    EXPECT_EQ(net->input_dtype, dtype);
    EXPECT_EQ(y.scalar_type(), dtype);
    EXPECT_TRUE(torch::equal(net->seen, master.to(dtype)));
    y.sum().backward();
    EXPECT_TRUE(torch::equal(full_parameter(*net, "weight"), master));
    EXPECT_EQ(full_gradient(*net, "weight").scalar_type(), kFp32);
    EXPECT_EQ(net->weight.scalar_type(), kFp32) << "resharded";
  });
}

TEST(Precision, ComputesInParamDtypeAndKeepsFp32Shards) {
  for (const auto dtype : {kBf16, kFp16}) {
    for (const auto strategy : {Strategy::FullShard, Strategy::NoShard}) {
      expect_computes_in(dtype, strategy);
    }
  }
}

TEST(Precision, SumsBf16GradientsInFp32) {
  // 1 + 2^-8 is lost in a bf16 sum, kept in an fp32 one.
  on_ranks(2, [](const DeviceMesh& mesh) {
    Unit<Probe> net;
    fully_shard(net, mesh, {.precision = {.param_dtype = kBf16}});
    const float mine = mesh.rank() == 0 ? 1.0F : 1.0F / 256;
    net(torch::full({19}, mine)).sum().backward();
    EXPECT_TRUE(torch::equal(full_gradient(*net, "weight"),
                             torch::full({19}, (1.0F + 1.0F / 256) / 2)));
  });
}

TEST(Precision, RoundsTheSumToReduceDtype) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    Unit<Probe> net;
    fully_shard(net, mesh,
                {.precision = {.param_dtype = kBf16, .reduce_dtype = kBf16}});
    const float mine = mesh.rank() == 0 ? 1.0F : 1.0F / 256;
    net(torch::full({19}, mine)).sum().backward();
    EXPECT_TRUE(torch::equal(full_gradient(*net, "weight"),
                             torch::full({19}, 0.5F)));  // ties to even
  });
}

TEST(Precision, SumsFp16GradientsInFp32) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    Unit<Probe> net;
    fully_shard(net, mesh, {.precision = {.param_dtype = kFp16}});
    // 1 + 2^-11 is lost in an fp16 sum, and 120000 would overflow.
    const float mine = mesh.rank() == 0 ? 1.0F : 1.0F / 2048;
    net(torch::full({19}, mine)).sum().backward();
    EXPECT_TRUE(torch::equal(full_gradient(*net, "weight"),
                             torch::full({19}, (1.0F + 1.0F / 2048) / 2)));
    net->zero_grad();
    net(torch::full({19}, 60000.0F)).backward(torch::ones({19}, kFp16));
    EXPECT_TRUE(torch::equal(full_gradient(*net, "weight"),
                             torch::full({19}, 60000.0F)));
  });
}

TEST(Precision, OverflowOfOneRankReachesAll) {
  on_ranks(3, [](const DeviceMesh& mesh) {
    Unit<Probe> net;
    fully_shard(net, mesh, {.precision = {.param_dtype = kFp16}});
    const float mine = mesh.rank() == 1 ? 300.0F : 1.0F;
    net(torch::full({19}, mine)).backward(torch::full({19}, 300.0F, kFp16));
    EXPECT_TRUE(torch::isinf(full_gradient(*net, "weight")).all().item<bool>());
  });
}

/// The gradient of two microbatches of 40000, kept whole in between.
torch::Tensor accumulated(const DeviceMesh& mesh, torch::Dtype reduce_dtype) {
  Unit<Probe> net;
  fully_shard(
      net, mesh,
      {.precision = {.param_dtype = kFp16, .reduce_dtype = reduce_dtype},
       .accumulation = Accumulation::Unsharded});
  for (const bool last : {false, true}) {
    set_is_last_backward(*net, last);
    net(torch::full({19}, 40000.0F)).backward(torch::ones({19}, kFp16));
  }
  return full_gradient(*net, "weight");
}

TEST(Precision, AccumulatesInReduceDtypeWhichMayOverflow) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    EXPECT_TRUE(
        torch::equal(accumulated(mesh, kFp32), torch::full({19}, 80000.0F)));
    EXPECT_TRUE(torch::isinf(accumulated(mesh, kFp16)).all().item<bool>());
  });
}

TEST(Precision, CastsOutputsWhenAsked) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    Unit<Probe> net;
    fully_shard(net, mesh,
                {.precision = {.param_dtype = kBf16, .output_dtype = kFp32}});
    const auto y = net(torch::ones({19}));
    EXPECT_EQ(y.scalar_type(), kFp32);
    y.sum().backward();
    EXPECT_TRUE(torch::equal(full_gradient(*net, "weight"), torch::ones({19})));
  });
}

TEST(Precision, LeavesInputsAloneWhenAsked) {
  on_ranks(1, [](const DeviceMesh& mesh) {
    Unit<Probe> net;
    fully_shard(
        net, mesh,
        {.precision = {.param_dtype = kBf16, .cast_forward_inputs = false}});
    net(torch::ones({19}));
    EXPECT_EQ(net->input_dtype, kFp32);
    EXPECT_EQ(net->weight_dtype, kBf16);
  });
}

TEST(Precision, GradientSinkSurvivesTheChangeOfDtypeWhenCalledTwice) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    Unit<Probe> net;
    fully_shard(net, mesh, {.precision = {.param_dtype = kBf16}});
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      const auto a = net(torch::ones({19}));
      const auto b = net(torch::full({19}, 2.0F));
      (a + b).sum().backward();
      EXPECT_TRUE(
          torch::equal(full_gradient(*net, "weight"), torch::full({19}, 3.0F)))
          << "step " << step;
    }
  });
}

}  // namespace
}  // namespace accordion
