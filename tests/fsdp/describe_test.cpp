// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/describe.h"

#include <algorithm>
#include <chrono>
#include <iostream>

#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "accordion/comm/fake/fake_communicator.h"
#include "accordion/fsdp/controls.h"
#include "accordion/fsdp/fully_shard.h"
#include "tests/fsdp/expect_in.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using testing::expect_in;

constexpr int kWidth = 256;  // a block gathers 1 MiB in fp32

struct WideBlockImpl : torch::nn::Module {
  explicit WideBlockImpl(int width = kWidth) {
    up = register_module("up", torch::nn::Linear(width, 2 * width));
    down = register_module("down", torch::nn::Linear(2 * width, width));
  }
  torch::Tensor forward(torch::Tensor x) { return down(up(x)); }
  torch::nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(WideBlock);

/// Four blocks; embedding and head belong to the root.
template <template <class> class Wrap>
struct DecoderImpl : torch::nn::Module {
  explicit DecoderImpl(int width = kWidth) {
    embed = register_module("embed", torch::nn::Embedding(1000, width));
    for (int i = 0; i < 4; ++i) {
      blocks.push_back(
          register_module("block" + std::to_string(i), Wrap<WideBlock>(width)));
    }
    head = register_module("head", torch::nn::Linear(width, 1000));
  }
  torch::Tensor forward(torch::Tensor tokens) {
    auto x = embed(tokens);
    for (auto& block : blocks) {
      x = block(x);
    }
    return head(x);
  }
  torch::nn::Embedding embed{nullptr};
  std::vector<Wrap<WideBlock>> blocks;
  torch::nn::Linear head{nullptr};
};
template <class Holder>
using Plain = Holder;
struct Decoder : torch::nn::ModuleHolder<DecoderImpl<Unit>> {
  using ModuleHolder::ModuleHolder;
};
struct PlainDecoder : torch::nn::ModuleHolder<DecoderImpl<Plain>> {
  using ModuleHolder::ModuleHolder;
};

DeviceMesh mesh_of(int ranks) {
  return DeviceMesh::over(make_fake_communicator(ranks / 2, ranks));
}

template <class Net>
ModuleDescription sharded(Net& net, FsdpOptions options = {}, int ranks = 4) {
  fully_shard(net, mesh_of(ranks), options);
  return describe(net);
}

/// The only warning; what there is instead where there are more or fewer.
std::string only_warning(const ModuleDescription& description) {
  const std::vector<std::string> found = warnings(description);
  return found.size() == 1 ? found.front()
                           : std::to_string(found.size()) + " warnings\n" +
                                 to_text(description);
}

/// Whether any warning contains `phrase`.
bool warns(const ModuleDescription& description, const std::string& phrase) {
  const std::vector<std::string> found = warnings(description);
  return std::any_of(found.begin(), found.end(), [&](const auto& warning) {
    return warning.find(phrase) != std::string::npos;
  });
}

TEST(Describe, ListsUnitsSectionsAndThisRanksPieces) {
  Unit<Decoder> net;
  for (auto& parameter : net->blocks[1]->parameters()) {
    parameter.set_requires_grad(false);
  }
  const auto description = sharded(
      net, {.precision = {.param_dtype = torch::kBFloat16}, .prefetch = 2}, 3);
  ASSERT_EQ(description.units.size(), 5U);
  EXPECT_EQ(description.rank, 1);
  EXPECT_EQ(description.units[1].parent, 0);
  EXPECT_FALSE(description.units[0].reshard_after_forward);
  const UnitDescription& block = description.units[2];
  EXPECT_EQ(block.name, "block1");
  EXPECT_EQ(block.numel(), 2 * kWidth * 2 * kWidth + 3 * kWidth);
  EXPECT_EQ(block.gradient_bytes, 0) << "frozen";
  ASSERT_EQ(block.sections.size(), 1U);
  EXPECT_EQ(block.sections[0].gathered_dtype, DType::Bfloat16);
  EXPECT_EQ(block.shard_bytes, 4 * block.sections[0].numel_per_rank);
  EXPECT_EQ(block.unsharded_bytes, 2 * block.sections[0].padded_numel);
  EXPECT_EQ(description.units[1].gradient_bytes, block.unsharded_bytes)
      << "in the dtype of computation";
  std::int64_t elements = 0;
  for (const ParameterDescription& parameter : block.parameters) {
    EXPECT_EQ(parameter.bytes, 4 * parameter.piece.numel());
    elements += parameter.piece.numel();
  }
  EXPECT_NEAR(static_cast<double>(elements),
              static_cast<double>(block.numel()) / 3,
              0.01 * static_cast<double>(block.numel()));
  EXPECT_GT(description.bytes.parameter_slots, 0);

  const std::string text = to_text(description);
  expect_in(text, "full_shard over shard 3, as rank 1 holds it");
  expect_in(text, "prefetch 2, parameters BFloat16");
  expect_in(text, "unit block1: 262912 elements, shard ");
  expect_in(text, "section fp32 as bf16, frozen, sharded: 262912 elements");
  expect_in(text, "block1.up.weight                 [512, 256]");
  expect_in(text, "total of this rank: parameters ");
}

TEST(Describe, FollowsWhatIsFrozenLater) {
  Unit<Decoder> net;
  EXPECT_TRUE(sharded(net).units[1].parameters[0].requires_grad);
  for (auto& parameter : net->parameters()) {
    parameter.set_requires_grad(false);
  }
  const auto description = describe(net);
  EXPECT_FALSE(description.units[1].parameters[0].requires_grad);
  EXPECT_TRUE(warns(description, "every parameter is frozen"));
}

TEST(Describe, ListsWhatWasIgnoredAndDissolved) {
  Unit<Decoder> net;
  const auto placement = [](const ParameterInfo& parameter) {
    return parameter.name == "head.bias" ? ParameterPlacement::Ignore
                                         : ParameterPlacement::Shard;
  };
  const auto description = sharded(
      net, {.placement = placement,
            .wrap = wrap_if("is not block3", [](const WrapQuery& query) {
              return query.name != "block3";
            })});
  ASSERT_EQ(description.ignored.size(), 1U);
  ASSERT_EQ(description.dissolved.size(), 1U);
  const std::string text = to_text(description);
  expect_in(text, "ignored head.bias [1000], 3.9 KiB");
  expect_in(text, "dissolved block3, 262912 elements (not is not block3)");
}

TEST(Describe, NeedsAShardedModule) {
  Unit<Decoder> net(8);
  expect_in(testing::message_of<c10::ValueError>([&] { (void)describe(net); }),
            "[describe] module");
}

TEST(DescribeWarnings, HaveNothingToSayOfAGoodNet) {
  Unit<Decoder> net;
  EXPECT_EQ(warnings(sharded(net)), std::vector<std::string>());
  Unit<PlainDecoder> alone;
  EXPECT_EQ(warnings(sharded(alone, {}, 1)), std::vector<std::string>())
      << "one rank gathers nothing";
  Unit<PlainDecoder> replicated;
  EXPECT_EQ(warnings(sharded(replicated, {.strategy = Strategy::NoShard})),
            std::vector<std::string>());
  Unit<PlainDecoder> tiny(4);
  EXPECT_EQ(warnings(sharded(tiny)), std::vector<std::string>())
      << "one unit of 40 KiB is best";
}

TEST(DescribeWarnings, NameASingleUnit) {
  Unit<PlainDecoder> net;
  expect_in(only_warning(sharded(net)), "the root holds every parameter");
}

struct LargeUnitNetImpl : torch::nn::Module {
  LargeUnitNetImpl() {
    decoder = register_module("decoder", Unit<PlainDecoder>());
    block = register_module("block", Unit<WideBlock>());
  }
  torch::Tensor forward(torch::Tensor x) { return block(decoder(x)); }
  Unit<PlainDecoder> decoder{nullptr};
  Unit<WideBlock> block{nullptr};
};
TORCH_MODULE(LargeUnitNet);

TEST(DescribeWarnings, NameAUnitThatHoldsMost) {
  Unit<LargeUnitNet> net;
  expect_in(only_warning(sharded(net)), "unit 'decoder' holds 85 % of all");
}

struct NestedImpl : torch::nn::Module {
  NestedImpl() {
    decoder = register_module("decoder", Unit<Decoder>(8));
    block = register_module("block", Unit<WideBlock>(8));
  }
  torch::Tensor forward(torch::Tensor x) { return block(decoder(x)); }
  Unit<Decoder> decoder{nullptr};
  Unit<WideBlock> block{nullptr};
};
TORCH_MODULE(Nested);

TEST(Describe, NamesTheUnitAroundEach) {
  Unit<Nested> net;
  std::vector<int> parents;
  for (const UnitDescription& unit : sharded(net).units) {
    parents.push_back(unit.parent);
  }
  EXPECT_EQ(parents, (std::vector<int>{-1, 0, 1, 1, 1, 1, 0}));
}

TEST(DescribeWarnings, NameModulesInALargeRoot) {
  Unit<Decoder> net;
  expect_in(only_warning(
                sharded(net, {.wrap = wrap_if("is block0",
                                              [](const WrapQuery& query) {
                                                return query.name == "block0";
                                              })})),
            "the root holds 50 % of all elements besides embedding and head, "
            "and is whole while all others compute: 'block1.up', ");
}

TEST(DescribeWarnings, SayNothingOfARootWhoseGatherIsMostlyLatency) {
  const FsdpOptions only_block0{
      .wrap = wrap_if("is block0", [](const WrapQuery& query) {
        return query.name == "block0";
      })};
  Unit<Decoder> large;
  EXPECT_TRUE(warns(sharded(large, only_block0), "besides embedding and head"));
  // Still a quarter of all elements, in 300 KiB.
  Unit<Decoder> small(96);
  const auto description = sharded(small, only_block0);
  EXPECT_FALSE(warns(description, "besides embedding and head"));
}

TEST(DescribeWarnings, NameSmallUnits) {
  Unit<Decoder> net(64);
  expect_in(only_warning(sharded(net)),
            "4 units gather less than 256 KiB: 'block0', 'block1', 'block2', "
            "'block3'");
}

TEST(DescribeWarnings, NameFrozenRootsAndFrozenNets) {
  Unit<Decoder> net;
  net->embed->weight.set_requires_grad(false);
  for (auto& parameter : net->head->parameters()) {
    parameter.set_requires_grad(false);
  }
  expect_in(only_warning(sharded(net)), "the root is frozen and holds 32 %");
  set_reshard_after_forward(*net, true);
  EXPECT_TRUE(warnings(describe(net)).empty());

  Unit<Decoder> frozen;
  for (auto& parameter : frozen->parameters()) {
    parameter.set_requires_grad(false);
  }
  EXPECT_NE(warnings(sharded(frozen)).front().find("every parameter is frozen"),
            std::string::npos);
}

TEST(DescribeWarnings, NameUnitsOfMixedSections) {
  Unit<Decoder> net;
  net->blocks[2]->up->to(torch::kBFloat16);
  expect_in(only_warning(sharded(net)),
            "stored dtypes mix within unit 'block2':");
  Unit<Decoder> adapted;
  adapted->blocks[2]->up->weight.set_requires_grad(false);
  expect_in(only_warning(sharded(adapted)),
            "frozen and trainable parameters mix within unit 'block2':");
}

TEST(DescribeWarnings, NameReplicatedParametersThatAreLarge) {
  Unit<Decoder> net;
  const auto placement = [](const ParameterInfo& parameter) {
    return parameter.name == "embed.weight" ? ParameterPlacement::Replicate
                                            : ParameterPlacement::Shard;
  };
  expect_in(only_warning(sharded(net, {.placement = placement})),
            "replicated parameters are 16 % of all elements");
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

/// Embedding and head are units, and so are two blocks.
struct TiedDecoderImpl : torch::nn::Module {
  explicit TiedDecoderImpl(int width = kWidth) {
    embed = register_module("embed", Unit<torch::nn::Embedding>(1000, width));
    block0 = register_module("block0", Unit<WideBlock>(width));
    block1 = register_module("block1", Unit<WideBlock>(width));
    head = register_module("head", Unit<TiedHead>(embed->weight));
  }
  torch::Tensor forward(torch::Tensor tokens) {
    return head(block1(block0(embed(tokens))));
  }
  Unit<torch::nn::Embedding> embed{nullptr};
  Unit<WideBlock> block0{nullptr}, block1{nullptr};
  Unit<TiedHead> head{nullptr};
};
TORCH_MODULE(TiedDecoder);

TEST(DescribeWarnings, NameParametersThatTiesPullIntoTheRoot) {
  Unit<TiedDecoder> net;
  const auto description = sharded(net);
  expect_in(only_warning(description),
            "'embed.weight' is tied to 'head.weight' across units, so the root "
            "around both gathers it (32 % of all elements), and not 'embed', "
            "'head'");
  expect_in(to_text(description), "tied to it: head.weight");

  Unit<TiedDecoder> small(64);
  EXPECT_FALSE(warns(sharded(small), "is tied to")) << "250 KiB";
}

TEST(DescribeAtScale, DescribesOneOf4096RanksAndNamesThoseThatHoldNothing) {
  Unit<Decoder> net(64);
  const auto begin = std::chrono::steady_clock::now();
  fully_shard(net, mesh_of(4096));
  const auto between = std::chrono::steady_clock::now();
  const auto description = describe(net);
  const std::string text = to_text(description);
  const auto end = std::chrono::steady_clock::now();
  using Milliseconds = std::chrono::duration<double, std::milli>;
  std::cout << "4096 ranks: fully_shard "
            << Milliseconds(between - begin).count() << " ms, describe "
            << Milliseconds(end - between).count() << " ms\n";
  expect_in(text, "full_shard over shard 4096, as rank 2048 holds it");
  expect_in(text, " of 4096 ranks hold nothing of a section of unit 'block0'");
}

}  // namespace
}  // namespace accordion
