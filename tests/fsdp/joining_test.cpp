// SPDX-License-Identifier: BSD-3-Clause
// Ranks whose data needs other units, or that have no data.
#include <random>

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
  if (loss.requires_grad()) {
    (loss / static_cast<double>(routes.size())).backward();
  }
  const auto gradient = net->named_parameters()[name].grad();
  return gradient.defined() ? gradient
                            : torch::zeros_like(net->named_parameters()[name]);
}

/// How ranks are arranged, and what they run before they part.
struct Joining {
  FsdpOptions options = {};
  int warm_up = 2;  ///< passes in which every rank calls everything
  std::vector<MeshAxis> axes = {};  ///< default: all ranks shard
};

void expect_gradients(const Router& net,
                      const std::vector<std::vector<int>>& routes,
                      const std::string& when) {
  for (const std::string name : {"block0.up.weight", "block1.down.weight",
                                 "block2.up.bias", "head.weight"}) {
    const auto got = full_gradient(*net, name);
    const auto want = expected_gradient(routes, name);
    EXPECT_TRUE(torch::allclose(got, want, 1e-5, 1e-7))
        << name << ", " << when << ", largest difference "
        << (got - want).abs().max().item<double>();
  }
}

/// Trains a pass for each entry of `passes`: routes by rank, of which an empty
/// one has no data.
void expect_joined_passes(
    const std::vector<std::vector<std::vector<int>>>& passes,
    const Joining& setting) {
  const int world = static_cast<int>(passes.front().size());
  std::vector<Router> nets;
  for (int rank = 0; rank < world; ++rank) {
    nets.push_back(seeded<Router>());
  }
  const auto axes = setting.axes.empty()
                        ? std::vector<MeshAxis>{{"shard", world}}
                        : setting.axes;
  testing::on_meshes(
      make_local_meshes(axes, std::chrono::seconds(10)),
      [&](const DeviceMesh& mesh) {
        const auto rank = static_cast<std::size_t>(mesh.rank());
        Router& net = nets[rank];
        fully_shard(net, mesh, setting.options);
        for (std::size_t pass = 0; pass < passes.size(); ++pass) {
          const std::vector<int>& route = passes[pass][rank];
          net->zero_grad();
          if (route.empty()) {
            join_pass(*net);
          } else {
            net(batch_of(mesh.rank(), 4), route).square().mean().backward();
          }
          expect_gradients(net, passes[pass], "pass " + std::to_string(pass));
        }
      });
}

/// Trains passes in which every rank calls everything, then some with these
/// routes, by rank, and one as at first.
void expect_joined(const std::vector<std::vector<int>>& routes,
                   const Joining& setting = {}) {
  const std::vector<std::vector<int>> all(routes.size(), kAll);
  std::vector<std::vector<std::vector<int>>> passes(
      static_cast<std::size_t>(setting.warm_up), all);
  passes.push_back(routes);
  passes.push_back(routes);
  passes.push_back(all);
  expect_joined_passes(passes, setting);
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

/// Every arrangement in which joining must work.
std::vector<Joining> all_settings() {
  std::vector<Joining> settings;
  for (const int prefetch : {0, 2}) {
    settings.push_back({.options = {.prefetch = prefetch}});
  }
  for (const Strategy strategy :
       {Strategy::ShardGradOp, Strategy::ShardOptimizer, Strategy::NoShard}) {
    settings.push_back({.options = {.strategy = strategy}});
  }
  settings.push_back({.options = {.reshard_to_ranks = 2}});
  settings.push_back({.axes = {{"replicate", 2}, {"shard", 2}}});
  return settings;
}

TEST(Joining, UnderEveryPrefetchStrategyAndMesh) {
  for (const Joining& setting : all_settings()) {
    expect_joined({kAll, {0, 2}, kAll, {1}}, setting);
  }
}

TEST(Joining, InTheFirstPass) {
  for (Joining setting : all_settings()) {
    setting.warm_up = 0;
    expect_joined({kAll, {0, 2}, kAll, {1}}, setting);
    expect_joined({{0, 1}, {1, 2}, {0, 2}, {}}, setting);
  }
}

TEST(Joining, InAnotherOrderInTheFirstPass) {
  expect_joined({kAll, {2, 1, 0}}, {.warm_up = 0});
  expect_joined({{1, 0}, {2, 0}, {0, 1, 0}}, {.warm_up = 0});
}

TEST(Joining, RoutesThatChangeWithEveryPass) {
  std::mt19937 random(11);
  for (Joining setting : all_settings()) {
    setting.options.static_graph = false;
    std::vector<std::vector<std::vector<int>>> passes(6);
    for (auto& routes : passes) {
      routes.resize(4);
      for (std::vector<int>& route : routes) {
        for (unsigned calls = random() % 4; calls > 0; --calls) {
          route.push_back(static_cast<int>(random() % 3));
        }
      }
    }
    expect_joined_passes(passes, setting);
  }
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

/// Leaves one of its parameters out where it is told to, and has an input that
/// leads nowhere.
template <template <class> class Wrap>
struct PickyImpl : torch::nn::Module {
  struct PartImpl : torch::nn::Module {
    PartImpl() {
      scale = register_parameter("scale", torch::full({9}, 2.0F));
      shift = register_parameter("shift", torch::full({9}, 0.5F));
    }
    torch::Tensor forward(torch::Tensor x, torch::Tensor /*unused*/,
                          bool shifts) {
      x = x * scale;
      return shifts ? x + shift : x;
    }
    torch::Tensor scale, shift;
  };
  struct Part : torch::nn::ModuleHolder<PartImpl> {
    using torch::nn::ModuleHolder<PartImpl>::ModuleHolder;
  };
  PickyImpl() {
    for (int i = 0; i < 3; ++i) {
      parts.push_back(
          this->register_module("part" + std::to_string(i), Wrap<Part>()));
    }
  }
  torch::Tensor forward(torch::Tensor x, bool shifts) {
    for (auto& part : parts) {
      x = part(x, x * 2, shifts);
    }
    return x;
  }
  std::vector<Wrap<Part>> parts;
};
struct PlainPicky : torch::nn::ModuleHolder<PickyImpl<testing::Plain>> {
  using ModuleHolder::ModuleHolder;
};
struct UnitPicky : torch::nn::ModuleHolder<PickyImpl<Unit>> {
  using ModuleHolder::ModuleHolder;
};

TEST(Joining, ParametersUnusedByOneRank) {
  for (const bool static_graph : {true, false}) {
    on_ranks(
        2,
        [&](const DeviceMesh& mesh) {
          Unit<UnitPicky> net;
          fully_shard(net, mesh, {.static_graph = static_graph});
          for (int step = 0; step < 6; ++step) {
            // Both, one or the other, none; in the first pass and later.
            const auto shifts = [&](int rank) {
              return step % 4 == 1 || step % 4 == 2 * rank;
            };
            PlainPicky alone;
            torch::Tensor loss = torch::zeros({});
            for (int rank = 0; rank < 2; ++rank) {
              loss = loss + alone(torch::full({9}, 1.0F + rank), shifts(rank))
                                    .square()
                                    .mean() /
                                2;
            }
            loss.backward();
            net->zero_grad();
            net(torch::full({9}, 1.0F + mesh.rank()), shifts(mesh.rank()))
                .square()
                .mean()
                .backward();
            for (const auto& parameter : alone->named_parameters()) {
              const auto& gradient = parameter.value().grad();
              const auto want =
                  gradient.defined() ? gradient : torch::zeros({9});
              EXPECT_TRUE(
                  torch::allclose(full_gradient(*net, parameter.key()), want))
                  << parameter.key() << ", step " << step;
            }
          }
        },
        std::chrono::seconds(10));
  }
}

TEST(Joining, UnusedParameterDoesNotKeepItsUnitInBackward) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    Unit<UnitPicky> net;
    fully_shard(net, mesh);
    net(torch::ones({9}), false).square().mean().backward();
    // Its backward, like that of any other, ends before the next one begins.
    std::vector<Action> ends;
    for (const Action& action : markers_of(step_schedule(*net))) {
      const bool backward = action.kind == ActionKind::Backward ||
                            action.kind == ActionKind::BackwardEnd;
      if (backward && action.unit > 0) {
        ends.push_back(action);
      }
    }
    ASSERT_EQ(ends.size(), 6U);
    for (std::size_t i = 0; i < ends.size(); i += 2) {
      EXPECT_EQ(ends[i].kind, ActionKind::Backward);
      EXPECT_EQ(ends[i + 1].kind, ActionKind::BackwardEnd);
      EXPECT_EQ(ends[i].unit, ends[i + 1].unit);
    }
  });
}

TEST(Joining, ModulesOfOneClassAreToldApart) {
  std::vector<std::string> messages(2);
  on_ranks(
      2,
      [&](const DeviceMesh& mesh) {
        Router first = seeded<Router>();
        Router second = seeded<Router>();
        fully_shard(first, mesh);
        fully_shard(second, mesh);
        Router& called = mesh.rank() == 0 ? first : second;
        messages[static_cast<std::size_t>(mesh.rank())] =
            testing::message_of<CommError>([&] {
              called(batch_of(0, 4), kAll).square().mean().backward();
            });
      },
      std::chrono::seconds(5));
  EXPECT_NE(messages[0].find("turn of module 2"), std::string::npos)
      << messages[0];
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
  EXPECT_NE(messages[0].find("all_gather 'block1'"), std::string::npos)
      << messages[0];
  EXPECT_NE(messages[0].find("left the schedule of its earlier passes at the "
                             "forward of unit 'block1'"),
            std::string::npos)
      << messages[0];
}

}  // namespace
}  // namespace accordion
