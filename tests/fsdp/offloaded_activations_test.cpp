// SPDX-License-Identifier: BSD-3-Clause
// Arguments of checkpointed calls that are not in memory between forward and
// backward.
#include "accordion/fsdp/offloaded_activations.h"

#include <filesystem>
#include <vector>

#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>

#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using ::testing::HasSubstr;

constexpr int kWidth = 96;
constexpr int kLayers = 6;
constexpr int kRows = 128;  // of a rank: an argument has 12 blocks

struct ScaledLayerImpl : torch::nn::Module {
  ScaledLayerImpl()
      : linear(register_module("linear", torch::nn::Linear(kWidth, kWidth))) {}
  /// `table` needs no gradient, and is the same in each call.
  torch::Tensor forward(torch::Tensor x, const torch::Tensor& table) {
    return x + torch::tanh(linear(x)) * table;
  }
  torch::nn::Linear linear;
};
TORCH_MODULE(ScaledLayer);

struct TallNetImpl : torch::nn::Module {
  TallNetImpl() {
    first = register_module("first", torch::nn::Linear(kWidth, kWidth));
    for (int i = 0; i < kLayers; ++i) {
      layers.push_back(
          register_module("layer" + std::to_string(i), Unit<ScaledLayer>()));
    }
  }
  torch::Tensor forward(torch::Tensor x) {
    x = first(x);
    const auto table = torch::linspace(0, 1, kWidth).expand({kRows, -1});
    for (auto& layer : layers) {
      x = layer(x, table.contiguous());
    }
    return x;
  }
  torch::nn::Linear first{nullptr};
  std::vector<Unit<ScaledLayer>> layers;
};
TORCH_MODULE(TallNet);
using Net = Unit<TallNet>;

torch::Tensor rows_of(int step, int rank) {
  const auto row = torch::arange(kRows, torch::kFloat).unsqueeze(1);
  const auto column = torch::arange(kWidth, torch::kFloat).unsqueeze(0);
  return torch::sin(row * 1.7 + column * 0.9 + step * 0.31 + rank);
}

OffloadTarget small(OffloadTarget target, int buffers = 3) {
  target.block_bytes = kOffloadAlignment;
  target.buffers = buffers;
  target.share = 1;
  return target;
}

FsdpOptions checkpointed(const OffloadTarget* offload) {
  ActivationCheckpointing checkpointing;
  if (offload != nullptr) {
    checkpointing.offload = *offload;
  }
  return {.activation_checkpointing = checkpointing};
}

void expect_same_gradients(const Net& got, const Net& want) {
  const auto expected = local_parameters(*want);
  const auto pieces = local_parameters(*got);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_TRUE(torch::equal(pieces[i].gradient, expected[i].gradient))
        << pieces[i].name;
  }
}

/// Runs `body(mesh, offloaded, plain)` with nets that differ in that alone.
template <class Body>
void with_nets(int world, const OffloadTarget& target, const Body& body) {
  std::vector<Net> nets;
  for (int i = 0; i < 2 * world; ++i) {
    torch::manual_seed(7);
    nets.emplace_back();
  }
  testing::on_ranks(world, [&](const DeviceMesh& mesh) {
    Net& plain = nets[static_cast<std::size_t>(mesh.rank())];
    Net& offloaded = nets[static_cast<std::size_t>(mesh.rank() + world)];
    fully_shard(plain, mesh, checkpointed(nullptr));
    fully_shard(offloaded, mesh, checkpointed(&target));
    body(mesh, offloaded, plain);
  });
}

TEST(OffloadedActivations, GradientsAreBitForBitThoseOfMemory) {
  HostPool pool(1 << 24);
  const OffloadTarget targets[] = {
      small(offload_to_host(pool)), small(offload_to_host(pool), 2),
      small(offload_to_nvme(std::filesystem::temp_directory_path()), 64),
      small(offload_to_nvme(std::filesystem::temp_directory_path()))};
  for (const OffloadTarget& target : targets) {
    for (const int world : {1, 2, 3}) {
      with_nets(
          world, target,
          [](const DeviceMesh& mesh, Net& offloaded, Net& plain) {
            for (int step = 0; step < 4; ++step) {
              for (Net* net : {&offloaded, &plain}) {
                (*net)(rows_of(step, mesh.rank())).square().mean().backward();
              }
              expect_same_gradients(offloaded, plain);
            }
          });
    }
  }
}

TEST(OffloadedActivations, MovesArgumentsThatNeedAGradientOncePerStep) {
  HostPool pool(1 << 24);
  with_nets(1, small(offload_to_host(pool), 2),
            [&](const DeviceMesh& /*mesh*/, Net& net, Net& plain) {
              constexpr std::int64_t kBytes = kLayers * kRows * kWidth * 4;
              std::int64_t held = 0;
              for (int step = 1; step < 4; ++step) {
                net(rows_of(step, 0)).square().mean().backward();
                const auto counters =
                    offloaded_activations(*net)->blocks().counters();
                EXPECT_EQ(counters.bytes_written, step * kBytes);
                EXPECT_LE(counters.bytes_read, step * kBytes);
                EXPECT_GE(counters.bytes_read, step * (kBytes - 2 * 4096));
                EXPECT_EQ(pool.held_bytes(), kBytes) << "arrays serve again";
                held = pool.held_bytes();
              }
              EXPECT_EQ(held, kBytes);
              EXPECT_EQ(offloaded_activations(*plain), nullptr);
              EXPECT_EQ(sharded_bytes(*net).activation_buffers, 2 * 4096);
            });
}

TEST(OffloadedActivations, AreReadAheadInBackwardOrder) {
  HostPool pool(1 << 24);
  with_nets(1, small(offload_to_host(pool), 24),
            [](const DeviceMesh& /*mesh*/, Net& net, Net& /*plain*/) {
              net(rows_of(0, 0)).square().mean().backward();
              const auto counters =
                  offloaded_activations(*net)->blocks().counters();
              EXPECT_GT(counters.reads, 0);
              EXPECT_EQ(counters.reads_in_time, counters.reads);
            });
}

TEST(OffloadedActivations, StayForASecondBackwardAndGoWithTheGraph) {
  HostPool pool(1 << 24);
  with_nets(2, small(offload_to_host(pool)),
            [&](const DeviceMesh& mesh, Net& offloaded, Net& plain) {
              for (Net* net : {&offloaded, &plain}) {
                const auto loss =
                    (*net)(rows_of(0, mesh.rank())).square().mean();
                loss.backward({}, /*retain_graph=*/true);
                loss.backward();
                (void)(*net)(rows_of(1, mesh.rank()));  // no backward follows
              }
              expect_same_gradients(offloaded, plain);
            });
  EXPECT_EQ(pool.held_bytes(), 0);
}

TEST(OffloadedActivations, ADiskThatIsFullIsAnErrorOfTheForward) {
  HostPool pool(100000);  // two arguments
  with_nets(1, small(offload_to_host(pool)),
            [](const DeviceMesh& /*mesh*/, Net& net, Net& /*plain*/) {
              EXPECT_THAT(testing::message_of<OffloadError>(
                              [&] { (void)net(rows_of(0, 0)); }),
                          HasSubstr("raise the limit of the pool"));
            });
}

TEST(OffloadedActivations, KeepsWhatACopyIsASubstituteFor) {
  HostPool pool(1 << 20);
  const auto kept =
      std::make_shared<OffloadedActivations>(small(offload_to_host(pool)));
  const auto x = torch::rand({64, 64}).set_requires_grad(true);
  EXPECT_EQ(kept->keep(x.detach()), nullptr) << "no gradient goes through it";
  EXPECT_EQ(kept->keep(x.t()), nullptr) << "a copy has other strides";
  EXPECT_EQ(kept->keep(x[0]), nullptr) << "small";
  const auto tensor = kept->keep(x);
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(kept->num_kept(), 1);
  EXPECT_TRUE(torch::equal(tensor->get(), x));
}

}  // namespace
}  // namespace accordion
