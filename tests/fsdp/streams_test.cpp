// SPDX-License-Identifier: BSD-3-Clause
// What the executor lets the queues of a device wait for, on a played one.
#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "accordion/comm/fake/fake_communicator.h"
#include "accordion/comm/streams/streamed_communicator.h"
#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/module/unit.h"
#include "tests/fsdp/rank_threads.h"
#include "tests/support/played_device.h"

namespace accordion {
namespace {

using detail::StreamId;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::PlayedDevice;

/// Plays the host's memory.
HostPool& host_memory() {
  static HostPool pool(1 << 20);
  return pool;
}

OffloadPolicy to_host() {
  return {.to = offload_to_host(host_memory()), .parameters = true};
}

/// What is sharded over how many ranks, of which this is the first.
struct Case {
  FsdpOptions options;
  int ranks = 2;
};

PlayedDevice::Memory memory_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr(), static_cast<std::int64_t>(tensor.nbytes())};
}

/// A block whose arithmetic tells the device what it reads.
struct TellingBlockImpl : torch::nn::Module {
  explicit TellingBlockImpl(PlayedDevice& device_it_runs_on)
      : device(device_it_runs_on),
        inner(register_module("inner", torch::nn::Linear(5, 5))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    tell("a forward");
    torch::Tensor y = torch::tanh(inner(x));
    if (y.requires_grad()) {
      y.register_hook([this](const torch::Tensor&) { tell("a backward"); });
    }
    return y;
  }
  void tell(const char* what) {
    std::vector<PlayedDevice::Memory> reads;
    for (const torch::Tensor& parameter : inner->parameters()) {
      reads.push_back(memory_of(parameter));
    }
    device.task(StreamId::Caller, what, reads, {});
  }
  PlayedDevice& device;
  torch::nn::Linear inner{nullptr};
};
TORCH_MODULE(TellingBlock);

struct TellingNetImpl : torch::nn::Module {
  explicit TellingNetImpl(PlayedDevice& device) {
    for (int i = 0; i < 4; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i),
                                       Unit<TellingBlock>(device)));
    }
  }
  torch::Tensor forward(torch::Tensor x) {
    for (auto& block : blocks) {
      x = block(x);
    }
    return x;
  }
  std::vector<Unit<TellingBlock>> blocks;
};
TORCH_MODULE(TellingNet);

std::shared_ptr<Communicator> streamed(
    const std::shared_ptr<PlayedDevice>& device, int ranks) {
  return detail::make_streamed_communicator(
      device, std::make_unique<testing::PlayedTransport>(*device, 0, ranks),
      make_fake_communicator(0, ranks),
      {.watch_interval = std::chrono::milliseconds(0)});
}

/// An optimizer that tells the device what it reads and writes.
void step(torch::nn::Module& net, PlayedDevice& device) {
  const torch::NoGradGuard no_grad;
  for (const FlatShard& shard : flat_shards(net)) {
    if (shard.gradients.defined()) {
      const std::vector reads{memory_of(shard.gradients)};
      const std::vector writes{memory_of(shard.parameters)};
      if (shard.on_host) {
        device.host_task("an optimizer on the host", reads, writes);
      } else {
        device.task(StreamId::Caller, "an optimizer", reads, writes);
      }
      shard.parameters.sub_(shard.gradients, 0.1);
    }
  }
  net.zero_grad();
}

/// Trains a telling net, and returns its losses.
std::vector<double> train(const std::shared_ptr<PlayedDevice>& device,
                          const DeviceMesh& mesh, const FsdpOptions& options) {
  torch::manual_seed(1);
  Unit<TellingNet> net(*device);
  fully_shard(net, mesh, options);
  std::vector<double> losses;
  for (int i = 0; i < 5; ++i) {
    const torch::Tensor x = torch::linspace(-1, 1, 15).view({3, 5});
    const torch::Tensor loss = net(x).to(torch::kFloat).square().mean();
    loss.backward();
    losses.push_back(loss.item<double>());
    step(*net, *device);
    const torch::NoGradGuard no_grad;
    (void)net(x);  // outside of passes
  }
  return losses;
}

std::vector<std::string> races_of(const Case& c,
                                  std::optional<StreamId> forgets_waits_of) {
  const auto device = std::make_shared<PlayedDevice>();
  device->forgets_waits_of = forgets_waits_of;
  (void)train(device, DeviceMesh::over(streamed(device, c.ranks)), c.options);
  return device->races;
}

class Streams : public ::testing::TestWithParam<Case> {};

TEST_P(Streams, NoTwoQueuesTouchTheSameMemory) {
  EXPECT_THAT(races_of(GetParam(), std::nullopt), IsEmpty());
}

/// What the test above would find if the executor left out the waits.
TEST_P(Streams, RacesAreFoundWhereAQueueForgetsItsWaits) {
  EXPECT_THAT(races_of(GetParam(), StreamId::Gather), Not(IsEmpty()));
  EXPECT_THAT(races_of(GetParam(), StreamId::Caller), Not(IsEmpty()));
}

TEST_P(Streams, TrainsAsWithoutADevice) {
  const auto device = std::make_shared<PlayedDevice>();
  const auto apart = std::make_shared<PlayedDevice>();
  const auto& [options, ranks] = GetParam();
  EXPECT_EQ(train(device, DeviceMesh::over(streamed(device, ranks)), options),
            train(apart, DeviceMesh::over(make_fake_communicator(0, ranks)),
                  options));
}

INSTANTIATE_TEST_SUITE_P(
    , Streams,
    ::testing::Values(
        Case{{.prefetch = 1}}, Case{{.prefetch = 3}, 3},
        Case{{.strategy = Strategy::ShardGradOp}},
        Case{{.strategy = Strategy::ShardOptimizer}},
        Case{{.precision = {.param_dtype = torch::kBFloat16}}},
        Case{{.static_graph = false}},
        // One rank, and one that holds everything: gathers are casts.
        Case{{.precision = {.param_dtype = torch::kBFloat16}}, 1},
        Case{{.strategy = Strategy::NoShard,
              .precision = {.param_dtype = torch::kBFloat16}}},
        // Shards on the host.
        Case{{.offload = to_host()}},
        Case{{.precision = {.param_dtype = torch::kBFloat16},
              .offload = to_host()}},
        Case{{.precision = {.param_dtype = torch::kBFloat16},
              .offload = to_host()},
             1},
        Case{{.strategy = Strategy::NoShard, .offload = to_host()}}));

DeviceMesh played_mesh(int ranks) {
  return DeviceMesh::over(streamed(std::make_shared<PlayedDevice>(), ranks));
}

TEST(ShardsOnTheHost, AreTakenOfThePoolAsLongAsTheyLive) {
  const auto device = std::make_shared<PlayedDevice>();
  const std::int64_t before = host_memory().held_bytes();
  {
    Unit<TellingNet> net(*device);
    fully_shard(net, DeviceMesh::over(streamed(device, 2)),
                {.offload = to_host()});
    std::int64_t bytes = 0;
    for (const FlatShard& shard : flat_shards(*net)) {
      EXPECT_TRUE(shard.on_host);
      bytes += static_cast<std::int64_t>(shard.parameters.nbytes() +
                                         shard.gradients.nbytes());
    }
    EXPECT_EQ(host_memory().held_bytes() - before, bytes);
  }
  EXPECT_EQ(host_memory().held_bytes(), before);
}

TEST(ShardsOnTheHost, AreTheWholeOfTheirUnitOrNothing) {
  const auto error_of = [](const FsdpOptions& options) {
    return testing::message_of<c10::ValueError>([&] {
      PlayedDevice device;
      Unit<TellingNet> net(device);
      fully_shard(net, played_mesh(2), options);
    });
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(error_of({.offload = OffloadPolicy{.to = to_host().to}}),
              HasSubstr("offload names gradients alone"));
  EXPECT_THAT(error_of({.step_in_backward = true,
                        .offload = OffloadPolicy{.to = to_host().to,
                                                 .gradients = false,
                                                 .parameters = true}}),
              HasSubstr("offload names parameters alone"));
  EXPECT_THAT(error_of({.offload = OffloadPolicy{.to = offload_to_nvme("."),
                                                 .parameters = true}}),
              HasSubstr("but not to the host"));
}

}  // namespace
}  // namespace accordion
