// SPDX-License-Identifier: BSD-3-Clause
// Numbers of rows that leave ranks with other pieces than their neighbours', or
// with none.
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "tests/fsdp/odd_net.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using testing::rows_of;

constexpr int kGpt2Vocabulary = 50257;  // a prime number

/// Layers of 3, 7, 1 and 2 rows, each a unit, between an embedding and a head
/// that are one tensor.
template <template <class> class Wrap>
struct NarrowImpl : torch::nn::Module {
  NarrowImpl() {
    embed = this->register_module("embed",
                                  torch::nn::Embedding(kGpt2Vocabulary, 2));
    int width = 2;
    for (const int rows : {3, 7, 1, 2}) {
      layers.push_back(
          this->register_module("layer" + std::to_string(layers.size()),
                                Wrap<torch::nn::Linear>(width, rows)));
      width = rows;
    }
  }
  torch::Tensor forward(torch::Tensor tokens) {
    auto x = embed(tokens);
    for (auto& layer : layers) {
      x = torch::tanh(layer(x));
    }
    return torch::linear(x, embed->weight);
  }
  torch::nn::Embedding embed{nullptr};
  std::vector<Wrap<torch::nn::Linear>> layers;
};
struct PlainNarrow : torch::nn::ModuleHolder<NarrowImpl<testing::Plain>> {
  using ModuleHolder::ModuleHolder;
};
struct UnitNarrow : torch::nn::ModuleHolder<NarrowImpl<Unit>> {
  using ModuleHolder::ModuleHolder;
};

constexpr int kBatch = 120;
constexpr int kSteps = 3;

/// From all over the vocabulary, the last row included.
torch::Tensor tokens_of(int step) {
  return (torch::arange(kBatch, torch::kLong) * 419 + step * 101 +
          kGpt2Vocabulary - 1) %
         kGpt2Vocabulary;
}

torch::Tensor loss_of_step(const torch::Tensor& logits, int step, int rank,
                           int world) {
  return testing::class_loss(logits, rows_of(tokens_of(step + 1), rank, world));
}

torch::optim::SGD sgd(const std::vector<torch::Tensor>& parameters) {
  return torch::optim::SGD(parameters,
                           torch::optim::SGDOptions(0.5).momentum(0.9));
}

TEST(UnevenRows, EveryRankUpdatesItsPieceAtEveryWorldSize) {
  auto alone = testing::seeded<PlainNarrow>();
  auto optimizer = sgd(alone->parameters());
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    loss_of_step(alone(tokens_of(step)), step, 0, 1).backward();
    optimizer.step();
  }
  for (const int world : {2, 3, 4, 5, 8}) {
    std::vector<Unit<UnitNarrow>> nets;
    for (int rank = 0; rank < world; ++rank) {
      nets.push_back(testing::seeded<Unit<UnitNarrow>>());
    }
    testing::on_ranks(world, [&](const DeviceMesh& mesh) {
      auto& net = nets[static_cast<std::size_t>(mesh.rank())];
      fully_shard(net, mesh);
      auto sharded = sgd(net->parameters());
      for (int step = 0; step < kSteps; ++step) {
        sharded.zero_grad();
        loss_of_step(net(rows_of(tokens_of(step), mesh.rank(), world)), step,
                     mesh.rank(), world)
            .backward();
        sharded.step();
      }
      for (const auto& parameter : alone->named_parameters()) {
        const auto got = full_parameter(*net, parameter.key());
        // Started between -1 and 1, moved by sums over all rows.
        EXPECT_TRUE(torch::allclose(got, parameter.value(), 1e-5, 5e-6))
            << parameter.key() << " on " << world
            << " ranks, largest difference "
            << (got - parameter.value()).abs().max().item<double>() << " of "
            << parameter.value().abs().max().item<double>();
      }
    });
  }
}

}  // namespace
}  // namespace accordion
