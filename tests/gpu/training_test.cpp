// SPDX-License-Identifier: BSD-3-Clause
// Sharded training on one GPU against plain LibTorch there, and against itself
// on the CPU.
#include <gmock/gmock.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>

#include "accordion/checkpoint/load_checkpoint.h"
#include "accordion/checkpoint/save_checkpoint.h"
#include "accordion/fsdp/comm_groups.h"
#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/models/llama.h"
#include "accordion/optim/adamw.h"
#include "accordion/optim/clip_grad_norm.h"
#include "tests/fsdp/models.h"
#include "tests/fsdp/rank_threads.h"
#include "tests/gpu/gpu_support.h"
#include "tests/support/temporary_folder.h"

namespace accordion {
namespace {

using testing::cpu_mesh;
using testing::gpu_mesh;
using testing::seeded;

constexpr int kSteps = 8;

class GpuTraining : public testing::OnGpu {};

using Losses = std::vector<double>;

/// Trains on what `mesh` joins.
Losses train(Unit<testing::UnitNet>& net, const DeviceMesh& mesh,
             const FsdpOptions& options) {
  fully_shard(net, mesh, options);
  AdamW optimizer(net, {.lr = 1e-2});
  const auto device = device_of(mesh.world());
  Losses losses;
  for (int step = 0; step < kSteps; ++step) {
    const at::Tensor loss =
        testing::loss_of(net(testing::batch_of(step, 4).to(device)),
                         testing::target_of(step, 4).to(device));
    loss.backward();
    optimizer.step(clip_coefficient(reduced_grad_norm(net), 0.5));
    optimizer.zero_grad();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

Losses train_on(const DeviceMesh& mesh, const FsdpOptions& options = {}) {
  auto net = seeded<Unit<testing::UnitNet>>();
  return train(net, mesh, options);
}

Losses train_plain(at::Device device) {
  auto net = seeded<testing::PlainNet>();
  net->to(device);
  torch::optim::AdamW optimizer(net->parameters(),
                                torch::optim::AdamWOptions(1e-2));
  Losses losses;
  for (int step = 0; step < kSteps; ++step) {
    const at::Tensor loss =
        testing::loss_of(net(testing::batch_of(step, 4).to(device)),
                         testing::target_of(step, 4).to(device));
    loss.backward();
    torch::nn::utils::clip_grad_norm_(net->parameters(), 0.5);
    optimizer.step();
    optimizer.zero_grad();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

void expect_near(const Losses& got, const Losses& expected, double relative) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], expected[i], relative * std::abs(expected[i]))
        << "step " << i;
  }
}

TEST_F(GpuTraining, FollowsPlainLibTorchOnTheSameDevice) {
  expect_near(train_on(gpu_mesh()), train_plain(at::kCUDA), 1e-5);
}

TEST_F(GpuTraining, FollowsTheCpu) {
  expect_near(train_on(gpu_mesh()), train_on(cpu_mesh()), 1e-4);
}

TEST_F(GpuTraining, FollowsTheCpuInBf16) {
  const FsdpOptions bf16{.precision = {.param_dtype = torch::kBFloat16}};
  expect_near(train_on(gpu_mesh(), bf16), train_on(cpu_mesh(), bf16), 2e-2);
}

TEST_F(GpuTraining, RepeatsBitForBit) {
  for (const auto dtype : {torch::kFloat, torch::kBFloat16}) {
    const FsdpOptions options{.precision = {.param_dtype = dtype}};
    EXPECT_EQ(train_on(gpu_mesh(), options), train_on(gpu_mesh(), options));
  }
}

TEST_F(GpuTraining, FollowsTheScheduleOfTheCpu) {
  const FsdpOptions bf16{.precision = {.param_dtype = torch::kBFloat16}};
  auto on_gpu = seeded<Unit<testing::UnitNet>>();
  auto on_cpu = seeded<Unit<testing::UnitNet>>();
  (void)train(on_gpu, gpu_mesh(), bf16);
  (void)train(on_cpu, cpu_mesh(), bf16);
  EXPECT_FALSE(step_schedule(*on_gpu).empty());
  EXPECT_TRUE(step_schedule(*on_gpu) == step_schedule(*on_cpu));
}

TEST_F(GpuTraining, TakesModulesThatAreOnTheDevice) {
  auto net = seeded<Unit<testing::UnitNet>>();
  net->to(at::kCUDA);
  expect_near(train(net, gpu_mesh(), {}), train_on(gpu_mesh()), 0);
}

TEST_F(GpuTraining, CheckpointedUnitsTrainAlike) {
  FsdpOptions options{.precision = {.param_dtype = torch::kBFloat16}};
  const Losses kept = train_on(gpu_mesh(), options);
  options.activation_checkpointing.emplace();
  expect_near(train_on(gpu_mesh(), options), kept, 0);
}

/// The CPU steps with our kernel, the device with LibTorch's.
TEST_F(GpuTraining, ShardsOnTheHostTrainAlike) {
  for (const auto& dtype : {std::optional<at::ScalarType>(), {at::kBFloat16}}) {
    FsdpOptions options{.precision = {.param_dtype = dtype}};
    const Losses on_device = train_on(gpu_mesh(), options);
    HostPool pool(1 << 30);
    options.offload = OffloadPolicy{
        .to = offload_to_host(pool), .gradients = true, .parameters = true};
    expect_near(train_on(gpu_mesh(), options), on_device, 1e-5);
    EXPECT_EQ(pool.held_bytes(), 0);
    EXPECT_GT(pool.peak_bytes(), 0);
  }
}

TEST_F(GpuTraining, NormOfReductionsIsThatOfGradients) {
  auto net = seeded<Unit<testing::UnitNet>>();
  fully_shard(net, gpu_mesh());
  testing::loss_of(net(testing::batch_of(0, 4).cuda()),
                   testing::target_of(0, 4).cuda())
      .backward();
  const double reduced = reduced_grad_norm(net);
  EXPECT_NEAR(clip_grad_norm_(net, 1e9), reduced, 1e-6 * reduced);
}

TEST_F(GpuTraining, CheckpointsLoadOnTheCpu) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "step";
  auto on_gpu = seeded<Unit<testing::UnitNet>>();
  (void)train(on_gpu, gpu_mesh(), {});
  AdamW of_gpu(on_gpu, {});
  save_checkpoint(on_gpu, of_gpu, path);
  auto on_cpu = seeded<Unit<testing::UnitNet>>();
  fully_shard(on_cpu, cpu_mesh());
  AdamW of_cpu(on_cpu, {});
  load_checkpoint(on_cpu, of_cpu, path);
  const auto saved = flat_shards(*on_gpu);
  const auto loaded = flat_shards(*on_cpu);
  ASSERT_EQ(saved.size(), loaded.size());
  for (std::size_t i = 0; i < saved.size(); ++i) {
    EXPECT_TRUE(saved[i].parameters.cpu().equal(loaded[i].parameters));
  }
}

TEST_F(GpuTraining, AModuleElsewhereThanItsMeshIsAnError) {
  auto net = seeded<Unit<testing::UnitNet>>();
  net->to(at::kCUDA);
  EXPECT_THAT(testing::message_of<c10::ValueError>(
                  [&] { fully_shard(net, cpu_mesh()); }),
              ::testing::HasSubstr("backend = \"nccl\""));
}

/// A decoder of a few thousand parameters, in Hugging Face's shape.
Losses train_llama(const DeviceMesh& mesh) {
  const LlamaConfig config{.hidden_size = 64,
                           .intermediate_size = 96,
                           .num_hidden_layers = 3,
                           .num_attention_heads = 4,
                           .num_key_value_heads = 2,
                           .head_dim = 16,
                           .vocab_size = 50,
                           .max_position_embeddings = 32};
  auto net = seeded<Unit<Llama>>(config);
  {
    const at::NoGradGuard no_grad;
    torch::manual_seed(5);
    for (const auto& parameter : net->parameters()) {
      parameter.normal_(0, 0.05);
    }
  }
  fully_shard(net, mesh);
  AdamW optimizer(net, {.lr = 1e-3});
  const std::optional<int> cuda = mesh.world().cuda_device();
  const at::Device device = cuda ? at::Device(at::kCUDA, 0) : at::kCPU;
  const at::Tensor tokens =
      (torch::arange(2 * 33) * 7 % 50).view({2, 33}).to(device);
  Losses losses;
  for (int step = 0; step < kSteps; ++step) {
    const at::Tensor loss = net(tokens.narrow(1, 0, 32).contiguous(),
                                tokens.narrow(1, 1, 32).contiguous())
                                .loss;
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

TEST_F(GpuTraining, ALlamaFollowsTheCpu) {
  expect_near(train_llama(gpu_mesh()), train_llama(cpu_mesh()), 1e-4);
}

}  // namespace
}  // namespace accordion
