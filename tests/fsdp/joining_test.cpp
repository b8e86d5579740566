// SPDX-License-Identifier: BSD-3-Clause
// Ranks whose data needs other units, or that have no data.
#include <torch/optim/sgd.h>

#include "accordion/fsdp/controls.h"
#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "tests/fsdp/models.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using testing::batch_of;
using testing::on_ranks;
using testing::seeded;

/// A net that calls the blocks it is told to, in that order.
template <template <class> class Wrap>
struct RouterImpl : torch::nn::Module {
  RouterImpl() {
    for (int i = 0; i < 3; ++i) {
      blocks.push_back(this->register_module("block" + std::to_string(i),
                                             Wrap<testing::Block>()));
    }
    head =
        this->register_module("head", torch::nn::Linear(testing::kFeatures, 3));
  }
  torch::Tensor forward(torch::Tensor x, std::vector<int> route) {
    for (const int i : route) {
      x = blocks[static_cast<std::size_t>(i)](x);
    }
    return head(x);
  }
  std::vector<Wrap<testing::Block>> blocks;
  torch::nn::Linear head{nullptr};
};
struct PlainRouter : torch::nn::ModuleHolder<RouterImpl<testing::Plain>> {
  using ModuleHolder::ModuleHolder;
};
struct UnitRouter : torch::nn::ModuleHolder<RouterImpl<Unit>> {
  using ModuleHolder::ModuleHolder;
};
using Router = Unit<UnitRouter>;

const std::vector<int> kAll{0, 1, 2};

/// The gradient of the mean over ranks of their losses, by one process.
torch::Tensor expected_gradient(const std::vector<std::vector<int>>& routes,
                                const std::string& name) {
  auto net = seeded<PlainRouter>();
  torch::Tensor loss = torch::zeros({});
  for (std::size_t rank = 0; rank < routes.size(); ++rank) {
    if (!routes[rank].empty()) {
      loss = loss + net(batch_of(static_cast<int>(rank), 4), routes[rank])
                        .square()
                        .mean();
    }
  }
  (loss / static_cast<double>(routes.size())).backward();
  const auto gradient = net->named_parameters()[name].grad();
  return gradient.defined() ? gradient
                            : torch::zeros_like(net->named_parameters()[name]);
}

/// Trains two passes in which every rank calls everything, then one with these
/// routes, by rank; an empty one has no data.
void expect_joined(const std::vector<std::vector<int>>& routes,
                   const FsdpOptions& options = {}) {
  const int world = static_cast<int>(routes.size());
  std::vector<Router> nets;
  for (int rank = 0; rank < world; ++rank) {
    nets.push_back(seeded<Router>());
  }
  on_ranks(
      world,
      [&](const DeviceMesh& mesh) {
        const auto rank = static_cast<std::size_t>(mesh.rank());
        Router& net = nets[rank];
        fully_shard(net, mesh, options);
        const auto pass = [&](const std::vector<int>& route) {
          net->zero_grad();
          if (route.empty()) {
            join_pass(*net);
          } else {
            net(batch_of(mesh.rank(), 4), route).square().mean().backward();
          }
        };
        pass(kAll);
        pass(kAll);
        for (int repeat = 0; repeat < 2; ++repeat) {
          pass(routes[rank]);
          for (const std::string name :
               {"block0.up.weight", "block1.down.weight", "block2.up.bias",
                "head.weight"}) {
            const auto got = full_gradient(*net, name);
            const auto want = expected_gradient(routes, name);
            EXPECT_TRUE(torch::allclose(got, want, 1e-5, 1e-7))
                << name << ", repeat " << repeat << ", largest difference "
                << (got - want).abs().max().item<double>();
          }
        }
        pass(kAll);  // and everything goes on as before
      },
      std::chrono::seconds(10));
}

TEST(Joining, UnitSkippedByOneRank) {
  expect_joined({kAll, {0, 2}});
  expect_joined({{0, 2}, kAll});
  expect_joined({kAll, {0, 2}, kAll});
}

TEST(Joining, FirstUnitSkippedByOneRank) {
  expect_joined({kAll, {1, 2}});
}

TEST(Joining, LastUnitSkippedByOneRank) {
  expect_joined({{0, 1}, kAll});
}

TEST(Joining, OtherUnitsSkippedByEachRank) {
  expect_joined({{0, 1}, {1, 2}, {0, 2}});
}

TEST(Joining, AllButOneSkippedByOneRank) {
  expect_joined({kAll, {0}});
}

TEST(Joining, UnitSkippedByAllRanks) {
  expect_joined({{0, 2}, {0, 2}});
}

TEST(Joining, UnderEveryPrefetchAndStrategy) {
  for (const int prefetch : {0, 2}) {
    expect_joined({kAll, {0, 2}}, {.prefetch = prefetch});
  }
  for (const Strategy strategy :
       {Strategy::ShardGradOp, Strategy::ShardOptimizer, Strategy::NoShard}) {
    expect_joined({kAll, {0, 2}}, {.strategy = strategy});
  }
  expect_joined({kAll, {0, 2}, kAll, {1}}, {.reshard_to_ranks = 2});
}

TEST(Joining, RankWithoutData) {
  expect_joined({kAll, {}});
  expect_joined({{}, kAll, {}});
}

TEST(Joining, UnitsInAnotherOrderOnEveryRank) {
  expect_joined({{2, 1, 0}, {2, 1, 0}});
}

TEST(Joining, UnitCalledTwiceByEveryRank) {
  expect_joined({{0, 1, 1, 2}, {0, 1, 1, 2}});
}

TEST(Joining, UnevenDataEndsTogether) {
  std::vector<Router> nets{seeded<Router>(), seeded<Router>(),
                           seeded<Router>()};
  on_ranks(3, [&](const DeviceMesh& mesh) {
    Router& net = nets[static_cast<std::size_t>(mesh.rank())];
    fully_shard(net, mesh);
    torch::optim::SGD optimizer(net->parameters(), 0.01);
    const int batches = 2 + 2 * mesh.rank();
    int steps = 0;
    while (any_rank_has_data(*net, steps < batches)) {
      optimizer.zero_grad();
      if (steps < batches) {
        net(batch_of(steps, 4), kAll).square().mean().backward();
      } else {
        join_pass(*net);
      }
      optimizer.step();
      ++steps;
    }
    EXPECT_EQ(steps, 6);
  });
}

TEST(Joining, ForwardWithoutBackwardOnOneRank) {
  std::vector<Router> nets{seeded<Router>(), seeded<Router>()};
  on_ranks(2, [&](const DeviceMesh& mesh) {
    Router& net = nets[static_cast<std::size_t>(mesh.rank())];
    fully_shard(net, mesh);
    for (int step = 0; step < 4; ++step) {
      net->zero_grad();
      const auto loss = net(batch_of(mesh.rank(), 4), kAll).square().mean();
      const bool learns = step != 2 || mesh.rank() != 1;
      if (learns) {
        loss.backward();
      } else {
        join_pass(*net);
      }
      const std::vector<int> second = step == 2 ? std::vector<int>() : kAll;
      EXPECT_TRUE(torch::allclose(
          full_gradient(*net, "block1.up.weight"),
          expected_gradient({kAll, second}, "block1.up.weight"), 1e-5, 1e-7))
          << "step " << step;
    }
  });
}

TEST(Joining, BeforeTheFirstPassIsAnError) {
  std::vector<Router> nets{seeded<Router>()};
  on_ranks(1, [&](const DeviceMesh& mesh) {
    fully_shard(nets[0], mesh);
    const auto message =
        testing::message_of<c10::ValueError>([&] { join_pass(*nets[0]); });
    EXPECT_NE(message.find("has not trained a pass yet"), std::string::npos)
        << message;
  });
}

TEST(Joining, UnitThatOnlyOneRankCallsIsNamed) {
  std::vector<Router> nets{seeded<Router>(), seeded<Router>()};
  std::vector<std::string> messages(2);
  on_ranks(
      2,
      [&](const DeviceMesh& mesh) {
        const auto rank = static_cast<std::size_t>(mesh.rank());
        Router& net = nets[rank];
        fully_shard(net, mesh);
        const std::vector<int> usual{0, 2};
        net(batch_of(0, 4), usual).square().mean().backward();
        messages[rank] = testing::message_of<CommError>([&] {
          for (int step = 1; step < 3; ++step) {
            net(batch_of(step, 4), rank == 0 ? kAll : usual)
                .square()
                .mean()
                .backward();
          }
        });
      },
      std::chrono::seconds(5));
  EXPECT_NE(messages[0].find("block1"), std::string::npos) << messages[0];
}

}  // namespace
}  // namespace accordion
