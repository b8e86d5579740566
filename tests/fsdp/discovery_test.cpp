// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/unit_discovery.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "tests/fsdp/models.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

std::vector<std::string> names_of(const UnitMembers& unit) {
  std::vector<std::string> names;
  for (const MemberParameter& parameter : unit.parameters) {
    names.push_back(parameter.name);
  }
  return names;
}

TEST(UnitDiscovery, OuterUnitsOwnWhatInnerOnesDoNot) {
  Unit<testing::UnitNet> net(2);
  const auto units = discover_units(*net, placement_rule({}));
  ASSERT_EQ(units.size(), 3U);
  EXPECT_EQ(units[0].name, "");
  EXPECT_EQ(units[0].parent, -1);
  EXPECT_EQ(names_of(units[0]),
            (std::vector<std::string>{"head.weight", "head.bias"}));
  EXPECT_EQ(units[2].name, "block1");
  EXPECT_EQ(units[2].parent, 0);
  EXPECT_EQ(names_of(units[2]).front(), "block1.up.weight");
}

/// A head that uses the weight of an embedding.
struct TiedHeadImpl : torch::nn::Module {
  explicit TiedHeadImpl(torch::Tensor shared) {
    weight = register_parameter("weight", std::move(shared));
  }
  torch::Tensor forward(torch::Tensor x) { return x.matmul(weight.t()); }
  torch::Tensor weight;
};
TORCH_MODULE(TiedHead);

/// Embedding and head are units, but their weight is needed in both.
template <template <class> class Wrap>
struct TiedNetImpl : torch::nn::Module {
  TiedNetImpl() {
    embed = this->register_module("embed", Wrap<torch::nn::Embedding>(5, 7));
    head = this->register_module("head", Wrap<TiedHead>(embed->weight));
  }
  torch::Tensor forward(torch::Tensor tokens) {
    return head(torch::tanh(embed(tokens)));
  }
  Wrap<torch::nn::Embedding> embed{nullptr};
  Wrap<TiedHead> head{nullptr};
};
struct PlainTied : torch::nn::ModuleHolder<TiedNetImpl<testing::Plain>> {
  using ModuleHolder::ModuleHolder;
};
struct UnitTied : torch::nn::ModuleHolder<TiedNetImpl<Unit>> {
  using ModuleHolder::ModuleHolder;
};

TEST(UnitDiscovery, TiedParametersLiveInTheLowestUnitThatContainsAllOwners) {
  Unit<UnitTied> net;
  const auto units = discover_units(*net, placement_rule({}));
  ASSERT_EQ(units.size(), 3U);
  EXPECT_EQ(names_of(units[0]), std::vector<std::string>{"embed.weight"});
  EXPECT_TRUE(units[1].parameters.empty());
  EXPECT_TRUE(units[2].parameters.empty());
}

TEST(UnitDiscovery, TiedParametersTrainAsOne) {
  const auto tokens = torch::arange(6, torch::kLong).remainder(5);
  auto plain = testing::seeded<PlainTied>();
  plain(tokens).square().mean().backward();
  for (const int world : {1, 2, 3}) {
    std::vector<Unit<UnitTied>> nets;
    for (int rank = 0; rank < world; ++rank) {
      nets.push_back(testing::seeded<Unit<UnitTied>>());
    }
    testing::on_ranks(world, [&](const DeviceMesh& mesh) {
      auto& net = nets[static_cast<std::size_t>(mesh.rank())];
      fully_shard(net, mesh);
      ASSERT_EQ(local_parameters(*net).size(), 1U);
      for (int step = 0; step < 3; ++step) {
        net->zero_grad();
        net(tokens).square().mean().backward();
        EXPECT_TRUE(torch::allclose(full_gradient(*net, "embed.weight"),
                                    plain->embed->weight.grad(), 1e-5, 1e-6));
      }
    });
  }
}

}  // namespace
}  // namespace accordion
