// SPDX-License-Identifier: BSD-3-Clause
// Tensors that are one parameter because they share their memory.
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "accordion/fsdp/describe.h"
#include "accordion/fsdp/full_parameters.h"
#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/module/meta_init.h"
#include "tests/fsdp/expect_in.h"
#include "tests/fsdp/odd_net.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using testing::class_loss;
using testing::classes_of;
using testing::expect_in;
using testing::kFeatures;
using testing::kVocabulary;
using testing::message_of;
using testing::rows_of;
using testing::tokens_of;

/// Embedding and head are units; their weights are two tensors on one memory.
template <template <class> class Wrap>
struct TiedNetImpl : torch::nn::Module {
  TiedNetImpl() {
    embed = this->register_module(
        "embed", Wrap<torch::nn::Embedding>(kVocabulary, kFeatures));
    block = this->register_module("block", Wrap<testing::Block>());
    head = this->register_module(
        "head", Wrap<torch::nn::Linear>(kFeatures, kVocabulary));
    head->weight.set_data(embed->weight);
  }
  torch::Tensor forward(torch::Tensor tokens) {
    return head(block(embed(tokens).mean(1)));
  }
  Wrap<torch::nn::Embedding> embed{nullptr};
  Wrap<testing::Block> block{nullptr};
  Wrap<torch::nn::Linear> head{nullptr};
};
struct PlainTied : torch::nn::ModuleHolder<TiedNetImpl<testing::Plain>> {
  using ModuleHolder::ModuleHolder;
};
struct UnitTied : torch::nn::ModuleHolder<TiedNetImpl<Unit>> {
  using ModuleHolder::ModuleHolder;
};
using Net = Unit<UnitTied>;

constexpr int kRows = 12;
constexpr int kSteps = 4;

torch::optim::SGD sgd(const std::vector<torch::Tensor>& parameters) {
  return torch::optim::SGD(parameters,
                           torch::optim::SGDOptions(0.5).momentum(0.9));
}

/// Losses of a single process in which both modules hold one tensor, and its
/// embedding in the end.
struct Expected {
  std::vector<double> losses = {};
  torch::Tensor embedding = {};
};

Expected single_process() {
  auto net = testing::seeded<PlainTied>();
  net->head->weight = net->embed->weight;  // the tensor in use
  auto optimizer = sgd({net->embed->weight, net->head->bias,
                        net->block->up->weight, net->block->up->bias,
                        net->block->down->weight, net->block->down->bias});
  Expected expected;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const auto loss =
        class_loss(net(tokens_of(step, kRows)), classes_of(step, kRows));
    loss.backward();
    optimizer.step();
    expected.losses.push_back(loss.item<double>());
  }
  expected.embedding = net->embed->weight.detach();
  return expected;
}

void follow(Net& net, const DeviceMesh& mesh, const Expected& expected) {
  const auto mine = [&](const torch::Tensor& batch) {
    return rows_of(batch, mesh.rank(), mesh.world_size());
  };
  auto optimizer = sgd(net->parameters());  // lists both tensors
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    class_loss(net(mine(tokens_of(step, kRows))), mine(classes_of(step, kRows)))
        .backward();
    EXPECT_FALSE(net->head->weight.grad().defined()) << "it would step twice";
    optimizer.step();
  }
  const auto got = full_parameter(*net, "embed.weight");
  EXPECT_TRUE(torch::allclose(got, expected.embedding, 1e-4, 1e-5))
      << (got - expected.embedding).abs().max();
}

TEST(TiedByStorage, TrainAsOneParameter) {
  const Expected expected = single_process();
  ASSERT_LT(expected.losses.back(), expected.losses.front());
  for (const Strategy strategy :
       {Strategy::FullShard, Strategy::ShardOptimizer, Strategy::NoShard}) {
    for (const int world : {1, 2, 3, 4}) {
      std::vector<Net> nets;
      for (int rank = 0; rank < world; ++rank) {
        nets.push_back(testing::seeded<Net>());
      }
      testing::on_ranks(world, [&](const DeviceMesh& mesh) {
        Net& net = nets[static_cast<std::size_t>(mesh.rank())];
        fully_shard(net, mesh, {.strategy = strategy});
        follow(net, mesh, expected);
      });
    }
  }
}

TEST(TiedByStorage, AreListedOnceAndDescribedByAllNames) {
  std::vector<Net> nets{testing::seeded<Net>(), testing::seeded<Net>()};
  testing::on_ranks(2, [&](const DeviceMesh& mesh) {
    Net& net = nets[static_cast<std::size_t>(mesh.rank())];
    fully_shard(net, mesh);
    EXPECT_EQ(local_parameters(*net).size(), 6U);
    const ModuleDescription description = describe(net);
    EXPECT_EQ(description.units[0].parameters.at(0).names,
              (std::vector<std::string>{"embed.weight", "head.weight"}));
    EXPECT_TRUE(description.ignored.empty());
    int visited = 0;
    full_parameters(net, [&](const auto&, const auto&) { ++visited; });
    EXPECT_EQ(visited, mesh.rank() == 0 ? 6 : 0);
  });
}

TEST(TiedByStorage, AreSummonedAndAssignedThroughEither) {
  std::vector<Net> nets{testing::seeded<Net>(), testing::seeded<Net>()};
  testing::on_ranks(2, [&](const DeviceMesh& mesh) {
    Net& net = nets[static_cast<std::size_t>(mesh.rank())];
    fully_shard(net, mesh);
    {
      const SummonFullParameters whole(net);
      EXPECT_TRUE(torch::equal(net->embed->weight, net->head->weight));
      const torch::NoGradGuard no_grad;
      net->head->weight.fill_(2);
    }
    EXPECT_EQ(full_parameter(*net, "embed.weight").min().item<float>(), 2);
    {
      const SummonFullParameters whole(net);
      net->head->weight.set_data(torch::full({kVocabulary, kFeatures}, 3.0));
    }
    EXPECT_EQ(full_parameter(*net, "embed.weight").min().item<float>(), 3);
    net->head->weight.set_data(torch::ones({kVocabulary, kFeatures}));
    (void)net(tokens_of(0, 6));
    EXPECT_EQ(full_parameter(*net, "embed.weight").max().item<float>(), 1);
  });
}

TEST(TiedByStorage, StartAsOneParameterOnMetaToo) {
  const auto on_meta = [] {
    const MetaInit meta;
    return Net();
  };
  std::vector<Net> nets{on_meta(), on_meta()};
  testing::on_ranks(2, [&](const DeviceMesh& mesh) {
    Net& net = nets[static_cast<std::size_t>(mesh.rank())];
    fully_shard(net, mesh);
    EXPECT_EQ(local_parameters(*net).size(), 6U);
    const SummonFullParameters whole(net);
    EXPECT_GT(net->embed->weight.std().item<float>(), 0.5F)
        << "as an embedding, its first name";
    EXPECT_TRUE(torch::equal(net->embed->weight, net->head->weight));
  });
}

TEST(TiedByStorage, AreFrozenTogether) {
  Net net = testing::seeded<Net>();
  net->head->weight.set_requires_grad(false);
  testing::on_ranks(1, [&](const DeviceMesh& mesh) {
    expect_in(message_of<c10::ValueError>([&] { fully_shard(net, mesh); }),
              "'head.weight' are tied, but only one of them requires grad");
    net->head->weight.set_requires_grad(true);
    fully_shard(net, mesh);
    net->head->weight.set_requires_grad(false);
    expect_in(message_of<c10::ValueError>([&] { net(tokens_of(0, 6)); }),
              "is tied to another tensor, and only one of them requires grad");
  });
}

/// Two parameters that a and b show of one memory.
struct PairImpl : torch::nn::Module {
  PairImpl(const torch::Tensor& first, const torch::Tensor& second) {
    a = register_parameter("a", first.detach());
    b = register_parameter("b", second.detach());
  }
  torch::Tensor forward(torch::Tensor x) { return x * (a.sum() + b.sum()); }
  torch::Tensor a, b;
};
TORCH_MODULE(Pair);

FsdpOptions starting_at_one() {
  return {.init = {.initial_value = [](const auto&, const auto&) {
            return std::optional<InitialValue>(InitRule::constant(1));
          }}};
}

TEST(TiedByStorage, IsNotSaidOfPartsOfOneMemory) {
  testing::on_ranks(1, [](const DeviceMesh& mesh) {
    for (const auto device : {torch::kCPU, torch::kMeta}) {
      const auto memory = torch::ones({10}, torch::device(device));
      for (const int begin : {0, 4}) {
        Unit<Pair> overlapping(memory.slice(0, 0, 5),
                               memory.slice(0, begin, begin + 4));
        expect_in(message_of<c10::ValueError>([&] {
                    fully_shard(overlapping, mesh, starting_at_one());
                  }),
                  "different tensors in the same memory");
      }
      for (const int length : {4, 5}) {
        Unit<Pair> apart(memory.slice(0, 0, 5), memory.slice(0, 5, 5 + length));
        fully_shard(apart, mesh, starting_at_one());
        EXPECT_EQ(local_parameters(*apart).size(), 2U);
        EXPECT_EQ(full_parameter(*apart, "b").sum().item<float>(), length);
      }
    }
  });
}

TEST(TiedByStorage, IsNotSaidOfOneMemoryReadInTwoWays) {
  testing::on_ranks(1, [](const DeviceMesh& mesh) {
    const auto square = torch::ones({3, 3});
    const auto halves = torch::ones({4}, torch::kHalf);
    for (auto& pair : {Unit<Pair>(square, square.t()),
                       Unit<Pair>(halves, halves.view(torch::kBFloat16))}) {
      Unit<Pair> net = pair;
      expect_in(message_of<c10::ValueError>([&] { fully_shard(net, mesh); }),
                "different tensors in the same memory");
    }
  });
}

}  // namespace
}  // namespace accordion
