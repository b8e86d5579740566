// SPDX-License-Identifier: BSD-3-Clause
// Replicated and ignored parameters, those that are frozen or thawed later, and
// modules that are built on meta.
#include <torch/nn/modules/batchnorm.h>

#include "accordion/fsdp/controls.h"
#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/module/materialize.h"
#include "accordion/module/meta_init.h"
#include "accordion/optim/clip_grad_norm.h"
#include "tests/fsdp/models.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using testing::batch_of;
using testing::on_ranks;
using testing::seeded;

using Net = Unit<testing::UnitNet>;

std::vector<Net> seeded_nets(int world) {
  std::vector<Net> nets;
  for (int rank = 0; rank < world; ++rank) {
    nets.push_back(seeded<Net>());
  }
  return nets;
}

void backward(const DeviceMesh& mesh, Net& net) {
  net(testing::rows_of(batch_of(0, 12), mesh.rank(), mesh.world_size()))
      .square()
      .mean()
      .backward();
}

TEST(Placement, SmallParametersAreWholeEverywhereAndCountOnce) {
  for (const int world : {1, 2, 3}) {
    double expected = 0;
    {
      auto net = seeded<testing::PlainNet>();
      net(batch_of(0, 12)).square().mean().backward();
      for (const auto& parameter : net->parameters()) {
        expected += parameter.grad().square().sum().item<double>();
      }
    }
    auto nets = seeded_nets(world);
    on_ranks(world, [&](const DeviceMesh& mesh) {
      Net& net = nets[static_cast<std::size_t>(mesh.rank())];
      fully_shard(net, mesh, {.min_shard_numel = testing::kHidden + 1});
      backward(mesh, net);
      for (const LocalParameter& parameter : local_parameters(*net)) {
        const bool bias = parameter.name.ends_with("bias");
        EXPECT_EQ(parameter.replicas, bias ? world : 1) << parameter.name;
        if (bias) {
          EXPECT_EQ(parameter.end - parameter.begin,
                    c10::multiply_integers(parameter.global_shape));
        }
      }
      EXPECT_NEAR(clip_grad_norm_(net, 1e9), std::sqrt(expected), 1e-6);
    });
  }
}

TEST(Placement, ReplicatedParametersFollowInLowPrecisionToo) {
  auto nets = seeded_nets(2);
  auto plain = seeded_nets(2);
  on_ranks(2, [&](const DeviceMesh& mesh) {
    const auto rank = static_cast<std::size_t>(mesh.rank());
    FsdpOptions options{.precision = {.param_dtype = torch::kBFloat16}};
    fully_shard(plain[rank], mesh, options);
    options.placement = [](const ParameterInfo& parameter) {
      return parameter.name.find("up") != std::string_view::npos
                 ? ParameterPlacement::Replicate
                 : ParameterPlacement::Shard;
    };
    fully_shard(nets[rank], mesh, options);
    for (int step = 0; step < 3; ++step) {
      backward(mesh, plain[rank]);
      backward(mesh, nets[rank]);
      for (const char* name : {"block0.up.weight", "block2.down.bias"}) {
        EXPECT_TRUE(torch::equal(full_gradient(*nets[rank], name),
                                 full_gradient(*plain[rank], name)))
            << name << ", step " << step;
      }
    }
  });
}

TEST(Placement, IgnoredParametersAreLeftAlone) {
  auto nets = seeded_nets(2);
  on_ranks(2, [&](const DeviceMesh& mesh) {
    Net& net = nets[static_cast<std::size_t>(mesh.rank())];
    const auto before = net->head->weight.detach().clone();
    fully_shard(net, mesh, {.placement = [](const ParameterInfo& parameter) {
                  return parameter.name.starts_with("head")
                             ? ParameterPlacement::Ignore
                             : ParameterPlacement::Shard;
                }});
    EXPECT_TRUE(torch::equal(net->head->weight, before));
    backward(mesh, net);
    backward(mesh, net);
    EXPECT_EQ(net->head->weight.grad().sizes(), before.sizes());
    for (const LocalParameter& parameter : local_parameters(*net)) {
      EXPECT_FALSE(parameter.name.starts_with("head"));
    }
  });
}

TEST(Placement, RequiresGradMayChangeBetweenSteps) {
  auto nets = seeded_nets(2);
  on_ranks(2, [&](const DeviceMesh& mesh) {
    Net& net = nets[static_cast<std::size_t>(mesh.rank())];
    net->blocks[1]->up->weight.set_requires_grad(false);
    fully_shard(net, mesh);
    const auto gradients_at_first = sharded_bytes(*net).gradients;
    backward(mesh, net);
    backward(mesh, net);
    EXPECT_FALSE(net->blocks[1]->up->weight.grad().defined());

    net->zero_grad();
    net->blocks[1]->up->weight.set_requires_grad(true);
    for (auto& parameter : net->blocks[0]->parameters()) {
      parameter.set_requires_grad(false);
    }
    for (int repeat = 0; repeat < 2; ++repeat) {
      net->zero_grad();
      backward(mesh, net);
      auto plain = seeded<testing::PlainNet>();
      plain(batch_of(0, 12)).square().mean().backward();
      EXPECT_TRUE(torch::allclose(full_gradient(*net, "block1.up.weight"),
                                  plain->blocks[1]->up->weight.grad(), 1e-5,
                                  1e-7));
      EXPECT_FALSE(net->blocks[0]->up->weight.grad().defined());
    }
    EXPECT_GT(sharded_bytes(*net).gradients, gradients_at_first);
  });
}

TEST(Placement, FrozenParametersHoldNoGradientBytes) {
  auto nets = seeded_nets(2);
  on_ranks(2, [&](const DeviceMesh& mesh) {
    Net& net = nets[static_cast<std::size_t>(mesh.rank())];
    for (auto& item : net->named_parameters()) {
      item.value().set_requires_grad(item.key() == "block1.up.bias");
    }
    fully_shard(net, mesh);
    backward(mesh, net);
    backward(mesh, net);
    // One bias of 13 elements over two ranks, padded.
    EXPECT_LE(sharded_bytes(*net).gradients, 64);
    const auto schedule = step_schedule(*net);
    EXPECT_EQ(std::count_if(schedule.actions.begin(), schedule.actions.end(),
                            [](const Action& action) {
                              return action.kind == ActionKind::Reduce;
                            }),
              1);
  });
}

TEST(MetaModules, HaveTheValuesOfMaterializeOnAnyNumberOfRanks) {
  const auto on_meta = [] {
    const MetaInit meta;
    return Net();
  };
  auto expected = on_meta();
  materialize(expected, {.seed = 5});
  for (const int world : {1, 2, 3}) {
    std::vector<Net> nets;
    for (int rank = 0; rank < world; ++rank) {
      nets.push_back(on_meta());
    }
    on_ranks(world, [&](const DeviceMesh& mesh) {
      Net& net = nets[static_cast<std::size_t>(mesh.rank())];
      fully_shard(net, mesh, {.init = {.seed = 5}});
      for (const auto& item : expected->named_parameters()) {
        EXPECT_TRUE(
            torch::equal(full_parameter(*net, item.key()), item.value()))
            << item.key() << " on " << world << " ranks";
      }
      backward(mesh, net);
      backward(mesh, net);
    });
  }
}

struct NormedImpl : torch::nn::Module {
  NormedImpl() {
    linear = register_module("linear", torch::nn::Linear(4, 6));
    norm = register_module("norm", torch::nn::BatchNorm1d(6));
  }
  torch::Tensor forward(torch::Tensor x) { return norm(linear(x)); }
  torch::nn::Linear linear{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Normed);

TEST(MetaModules, LoadedValuesAreKeptAndBuffersAreRight) {
  const auto build = [] {
    const MetaInit meta;
    return Unit<Normed>();
  };
  std::vector<Unit<Normed>> nets{build(), build()};
  const auto loaded = torch::arange(24, torch::kFloat).view({6, 4});
  for (auto& net : nets) {
    assign_data(net->named_parameters()["linear.weight"], loaded.clone());
  }
  on_ranks(2, [&](const DeviceMesh& mesh) {
    auto& net = nets[static_cast<std::size_t>(mesh.rank())];
    fully_shard(net, mesh,
                {.precision = {.param_dtype = torch::kBFloat16,
                               .buffer_dtype = torch::kBFloat16}});
    EXPECT_TRUE(torch::equal(full_parameter(*net, "linear.weight"), loaded));
    const auto variance = net->named_buffers()["norm.running_var"];
    EXPECT_EQ(variance.scalar_type(), torch::kFloat) << "norms stay fp32";
    EXPECT_TRUE(torch::equal(variance, torch::ones({6})));
    net(torch::randn({8, 4})).sum().backward();
  });
}

struct TableImpl : torch::nn::Module {
  TableImpl() {
    linear = register_module("linear", torch::nn::Linear(2, 2));
    table = register_buffer("table", torch::ones({3}));
  }
  torch::Tensor forward(torch::Tensor x) { return linear(x) * table.sum(); }
  torch::nn::Linear linear{nullptr};
  torch::Tensor table;
};
TORCH_MODULE(Table);

TEST(MetaModules, BufferDtypeCastsOtherBuffers) {
  Unit<Table> net;
  on_ranks(1, [&](const DeviceMesh& mesh) {
    fully_shard(net, mesh, {.precision = {.buffer_dtype = torch::kBFloat16}});
    EXPECT_EQ(net->table.scalar_type(), torch::kBFloat16);
  });
}

TEST(MetaModules, ValuesOfRankZeroOnRequest) {
  std::vector<Net> nets;
  for (int rank = 0; rank < 3; ++rank) {
    torch::manual_seed(rank);
    nets.push_back(Net());
  }
  const auto expected = nets[0]->blocks[0]->up->weight.detach().clone();
  on_ranks(3, [&](const DeviceMesh& mesh) {
    Net& net = nets[static_cast<std::size_t>(mesh.rank())];
    fully_shard(net, mesh, {.broadcast_parameters = true});
    EXPECT_TRUE(
        torch::equal(full_parameter(*net, "block0.up.weight"), expected));
  });
}

TEST(WrapPolicies, DissolvedUnitsBelongToTheUnitAround) {
  auto nets = seeded_nets(2);
  on_ranks(2, [&](const DeviceMesh& mesh) {
    Net& net = nets[static_cast<std::size_t>(mesh.rank())];
    fully_shard(net, mesh, {.wrap = wrap_if("is block1", [](const auto& query) {
                              return query.name == "block1";
                            })});
    backward(mesh, net);
    backward(mesh, net);
    EXPECT_EQ(step_schedule(*net).units.size(), 2U);
    net->zero_grad();
    backward(mesh, net);
    auto plain = seeded<testing::PlainNet>();
    plain(batch_of(0, 12)).square().mean().backward();
    EXPECT_TRUE(torch::allclose(full_gradient(*net, "block0.up.weight"),
                                plain->blocks[0]->up->weight.grad(), 1e-5,
                                1e-7));
  });
}

}  // namespace
}  // namespace accordion
