// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/fsdp/full_parameters.h"

#include <map>
#include <stdexcept>

#include <torch/optim/sgd.h>

#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "tests/fsdp/expect_in.h"
#include "tests/fsdp/odd_net.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using testing::class_loss;
using testing::classes_of;
using testing::expect_in;
using testing::message_of;
using testing::on_ranks;
using testing::seeded;
using testing::tokens_of;
using OddNet = Unit<testing::UnitOddNet>;

FsdpOptions mixed(Strategy strategy) {
  FsdpOptions options{.strategy = strategy,
                      .precision = {.param_dtype = torch::kBFloat16}};
  options.placement = [](const ParameterInfo& parameter) {
    return parameter.name == "row"      ? ParameterPlacement::Ignore
           : parameter.name == "unused" ? ParameterPlacement::Replicate
                                        : ParameterPlacement::Shard;
  };
  return options;
}

/// Runs `body` at 1, 2 and 3 ranks of each strategy.
void on_sharded_nets(
    const std::function<void(OddNet&, const DeviceMesh&)>& body) {
  for (const Strategy strategy :
       {Strategy::FullShard, Strategy::ShardGradOp, Strategy::ShardOptimizer,
        Strategy::NoShard}) {
    for (const int world : {1, 2, 3}) {
      std::vector<OddNet> nets;
      for (int rank = 0; rank < world; ++rank) {
        nets.push_back(seeded<OddNet>());
      }
      on_ranks(world, [&](const DeviceMesh& mesh) {
        OddNet& net = nets[static_cast<std::size_t>(mesh.rank())];
        fully_shard(net, mesh, mixed(strategy));
        body(net, mesh);
      });
    }
  }
}

void backward(OddNet& net) {
  class_loss(net(tokens_of(0, 6)), classes_of(0, 6)).backward();
}

bool is_same(const torch::Tensor& a, const torch::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         torch::equal(a, b);
}

TEST(FullParameters, VisitEachOnRankZeroWithTheValuesOfTheWholeModule) {
  const auto plain = seeded<testing::PlainOddNet>();
  on_sharded_nets([&](OddNet& net, const DeviceMesh& mesh) {
    std::map<std::string, torch::Tensor> got;
    full_parameters(net, [&](const std::string& name, const torch::Tensor& p) {
      EXPECT_TRUE(got.emplace(name, p).second) << name;
      EXPECT_EQ(p.storage().nbytes(), p.nbytes()) << name << ": saved alone";
    });
    std::size_t expected = 0;
    for (const auto& item : plain->named_parameters()) {
      if (item.key() == "embed.weight") {
        continue;  // tied to head_weight
      }
      ++expected;
      if (mesh.rank() == 0) {
        ASSERT_TRUE(got.contains(item.key())) << item.key();
        EXPECT_TRUE(is_same(got[item.key()], item.value())) << item.key();
      }
    }
    EXPECT_EQ(got.size(), mesh.rank() == 0 ? expected : 0);
  });
}

TEST(FullParameters, ThrowWhatTheVisitorThrewAndKeepNoRankWaiting) {
  on_sharded_nets([](OddNet& net, const DeviceMesh& mesh) {
    int calls = 0;
    const std::string message = message_of<std::runtime_error>([&] {
      full_parameters(net, [&](const std::string&, const torch::Tensor&) {
        ++calls;
        throw std::runtime_error("the disk is full");
      });
    });
    EXPECT_EQ(message,
              mesh.rank() == 0 ? "the disk is full" : "nothing was thrown");
    EXPECT_EQ(calls, mesh.rank() == 0 ? 1 : 0);
    backward(net);  // and the module still works
  });
}

TEST(FullParameters, ShowWhatWasAssignedSinceTheLastPass) {
  on_sharded_nets([](OddNet& net, const DeviceMesh& mesh) {
    const auto numbers = torch::arange(13, torch::kFloat);
    for (int i = 0; i < 3; ++i) {
      net->blocks[static_cast<std::size_t>(i)]->up->bias.set_data(numbers + i);
    }
    EXPECT_TRUE(is_same(full_parameter(*net, "block0.up.bias"), numbers));
    full_parameters(net, [&](const std::string& name, const torch::Tensor& p) {
      EXPECT_TRUE(name != "block1.up.bias" || is_same(p, numbers + 1));
    });
    net->blocks[2]->up->bias.set_data(numbers + 7);
    const SummonFullParameters whole(net, {.rank0_only = true});
    if (mesh.rank() == 0) {
      EXPECT_TRUE(is_same(net->blocks[2]->up->bias, numbers + 7));
    }
  });
}

TEST(FullParameters, GradientsAreThoseThatTheModuleHas) {
  on_sharded_nets([](OddNet& net, const DeviceMesh&) {
    backward(net);
    auto& gradient = net->blocks[0]->up->weight.mutable_grad();
    gradient = torch::full_like(gradient, 2);
    EXPECT_TRUE(is_same(full_gradient(*net, "block0.up.weight"),
                        torch::full({13, 7}, 2.0F)));
    net->scale.mutable_grad() = torch::Tensor();
    EXPECT_EQ(full_gradient(*net, "scale").item<float>(), 0);
    net->zero_grad();
    EXPECT_EQ(full_gradient(*net, "block0.up.weight").abs().max().item<float>(),
              0);
  });
}

TEST(Summon, ShowsWholeParametersInTheStoredDtypeAndPiecesAfterwards) {
  const auto plain = seeded<testing::PlainOddNet>();
  on_sharded_nets([&](OddNet& net, const DeviceMesh&) {
    const auto pieces = local_parameters(*net);
    std::vector<std::vector<std::int64_t>> shapes;
    for (const auto& piece : pieces) {
      shapes.push_back(piece.parameter.sizes().vec());
    }
    {
      const SummonFullParameters whole(net);
      for (const auto& item : plain->named_parameters()) {
        EXPECT_TRUE(is_same(net->named_parameters()[item.key()], item.value()))
            << item.key();
      }
    }
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      EXPECT_EQ(pieces[i].parameter.sizes().vec(), shapes[i]);
    }
    backward(net);
  });
}

/// Numbers from 100 on, one a parameter.
void write(OddNet& net) {
  const torch::NoGradGuard no_grad;
  float number = 100;
  for (auto& parameter : net->parameters()) {
    parameter.fill_(number++);
  }
}

TEST(Summon, WritesBackWhatWasWrittenInPlaceOrAssigned) {
  on_sharded_nets([](OddNet& net, const DeviceMesh&) {
    {
      const SummonFullParameters whole(net);
      const torch::NoGradGuard no_grad;
      net->scale.fill_(3);
      net->blocks[0]->up->weight.copy_(
          torch::arange(91, torch::kFloat).view({13, 7}));
      net->blocks[1]->up->bias.set_data(torch::arange(13, torch::kFloat));
    }
    EXPECT_EQ(full_parameter(*net, "scale").item<float>(), 3);
    EXPECT_TRUE(is_same(full_parameter(*net, "block0.up.weight"),
                        torch::arange(91, torch::kFloat).view({13, 7})));
    EXPECT_TRUE(is_same(full_parameter(*net, "block1.up.bias"),
                        torch::arange(13, torch::kFloat)));
    backward(net);
  });
}

TEST(Summon, DropsWhatWasWrittenWithoutWriteback) {
  const auto plain = seeded<testing::PlainOddNet>();
  on_sharded_nets([&](OddNet& net, const DeviceMesh&) {
    {
      const SummonFullParameters whole(net, {.writeback = false});
      const torch::NoGradGuard no_grad;
      net->scale.fill_(3);
      net->embed->weight.zero_();
    }
    EXPECT_EQ(full_parameter(*net, "scale").item<float>(), 1);
    EXPECT_TRUE(
        is_same(full_parameter(*net, "head_weight"), plain->embed->weight));
  });
}

TEST(Summon, LetsRankZeroWriteForAll) {
  on_sharded_nets([](OddNet& net, const DeviceMesh& mesh) {
    {
      const SummonFullParameters whole(net, {.rank0_only = true});
      if (mesh.rank() == 0) {
        write(net);
        EXPECT_EQ(net->embed->weight.numel(), 77);
      } else {
        const auto local = local_parameters(*net).front();
        EXPECT_EQ(local.parameter.numel(), local.piece.numel()) << local.name;
      }
    }
    for (const char* name : {"head_weight", "block3.down.bias", "scale"}) {
      const torch::Tensor whole = full_parameter(*net, name);
      EXPECT_GE(whole.min().item<float>(), 100) << name;
    }
    backward(net);
  });
}

TEST(Summon, ShowsAndWritesGradients) {
  on_sharded_nets([](OddNet& net, const DeviceMesh&) {
    backward(net);
    const torch::Tensor before = full_gradient(*net, "block0.up.weight");
    {
      const SummonFullParameters whole(net, {.with_gradients = true});
      EXPECT_TRUE(is_same(net->blocks[0]->up->weight.grad(), before));
      EXPECT_FALSE(net->blocks[1]->up->weight.grad().defined()) << "frozen";
      net->blocks[0]->up->weight.mutable_grad().mul_(2);
      net->scale.mutable_grad() = torch::Tensor();
    }
    EXPECT_TRUE(is_same(full_gradient(*net, "block0.up.weight"), before * 2));
    EXPECT_EQ(full_gradient(*net, "scale").item<float>(), 0);
    {
      const SummonFullParameters whole(net);
      EXPECT_FALSE(net->blocks[0]->up->weight.grad().defined());
    }
    torch::optim::SGD(net->parameters(), 0.1).step();  // shapes agree again
  });
}

TEST(Summon, LeavesGradientsUndefinedThatWereNotThere) {
  on_sharded_nets([](OddNet& net, const DeviceMesh&) {
    for (const bool with_gradients : {false, true}) {
      {
        const SummonFullParameters whole(net,
                                         {.with_gradients = with_gradients});
        EXPECT_FALSE(net->scale.grad().defined());
      }
      EXPECT_FALSE(net->scale.grad().defined());
    }
  });
}

std::int64_t numel_of(const torch::nn::Module& module) {
  std::int64_t numel = 0;
  for (const auto& parameter : module.parameters()) {
    numel += parameter.numel();
  }
  return numel;
}

TEST(Summon, ShowsAUnitWhileOthersStayPieces) {
  std::vector<OddNet> nets{seeded<OddNet>(), seeded<OddNet>()};
  on_ranks(2, [&](const DeviceMesh& mesh) {
    OddNet& net = nets[static_cast<std::size_t>(mesh.rank())];
    fully_shard(net, mesh);
    const SummonFullParameters whole(net->blocks[2]);
    EXPECT_EQ(numel_of(*net->blocks[2]), 2 * 91 + 20);
    EXPECT_LT(numel_of(*net->blocks[3]), 2 * 91 + 20);
  });
}

TEST(Summon, ShowsPiecesAgainAfterAnException) {
  std::vector<OddNet> nets{seeded<OddNet>(), seeded<OddNet>()};
  on_ranks(2, [&](const DeviceMesh& mesh) {
    OddNet& net = nets[static_cast<std::size_t>(mesh.rank())];
    fully_shard(net, mesh);
    (void)message_of<std::runtime_error>([&] {
      const SummonFullParameters whole(net);
      write(net);
      throw std::runtime_error("in the guard");
    });
    EXPECT_LT(numel_of(*net->blocks[2]), 2 * 91 + 20);
    EXPECT_GE(full_parameter(*net, "scale").item<float>(), 100);
    backward(net);
  });
}

TEST(Summon, NamesPassesAndGuardsInsideIt) {
  on_sharded_nets([](OddNet& net, const DeviceMesh&) {
    const auto loss = class_loss(net(tokens_of(0, 6)), classes_of(0, 6));
    {
      const SummonFullParameters whole(net);
      expect_in(message_of<c10::ValueError>([&] { net(tokens_of(0, 6)); }),
                "unit '' was called, in forward or backward, while a guard");
      expect_in(message_of<c10::ValueError>([&] {
                  const torch::NoGradGuard no_grad;
                  net(tokens_of(0, 6));
                }),
                "unit '' was called, in forward or backward, while a guard");
      expect_in(message_of<c10::ValueError>([&] { loss.backward(); }),
                "was called, in forward or backward, while a guard");
      expect_in(message_of<c10::ValueError>(
                    [&] { net->embed->weight.sum().backward(); }),
                "a gradient of 'head_weight' arrived, while a guard");
      expect_in(message_of<c10::ValueError>(
                    [&] { const SummonFullParameters inner(net->blocks[0]); }),
                "another guard shows the parameters of unit 'block0'");
    }
    net->zero_grad();
    backward(net);
    EXPECT_TRUE(net->blocks[0]->up->weight.grad().defined());
  });
}

// Gathered for the backward that the guard made fail.
TEST(Summon, ShowsPiecesOfOtherUnitsAfterwardsToo) {
  std::vector<OddNet> nets{seeded<OddNet>(), seeded<OddNet>()};
  on_ranks(2, [&](const DeviceMesh& mesh) {
    OddNet& net = nets[static_cast<std::size_t>(mesh.rank())];
    fully_shard(net, mesh);
    const auto numel = numel_of(*net);
    const auto loss = class_loss(net(tokens_of(0, 6)), classes_of(0, 6));
    {
      const SummonFullParameters whole(net->blocks[1]);
      expect_in(message_of<c10::ValueError>([&] { loss.backward(); }),
                "unit 'block1' was called, in forward or backward");
    }
    EXPECT_EQ(numel_of(*net), numel);
    backward(net);
  });
}

struct SummoningImpl : torch::nn::Module {
  SummoningImpl() {
    linear = register_module("linear", torch::nn::Linear(3, 3));
  }
  torch::Tensor forward(torch::Tensor x) {
    const SummonFullParameters whole(*this);
    return linear(x);
  }
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(Summoning);

TEST(Summon, IsRefusedInsideForwardAndWithoutASharding) {
  std::vector<Unit<Summoning>> nets{seeded<Unit<Summoning>>(),
                                    seeded<Unit<Summoning>>()};
  on_ranks(2, [&](const DeviceMesh& mesh) {
    auto& net = nets[static_cast<std::size_t>(mesh.rank())];
    expect_in(message_of<c10::ValueError>([&] {
                net(torch::ones({2, 3}));
              }),
              "contains no unit of a sharded module");
    fully_shard(net, mesh);
    expect_in(message_of<c10::ValueError>([&] {
                net(torch::ones({2, 3}));
              }),
              "made inside the forward or backward");
  });
}

TEST(Summon, RefusesAnotherShapeOnCloseAndWritesTheRest) {
  std::vector<OddNet> nets{seeded<OddNet>(), seeded<OddNet>()};
  on_ranks(2, [&](const DeviceMesh& mesh) {
    OddNet& net = nets[static_cast<std::size_t>(mesh.rank())];
    fully_shard(net, mesh);
    SummonFullParameters whole(net, {.rank0_only = true});
    if (mesh.rank() == 0) {
      net->blocks[0]->up->bias.set_data(torch::ones({14}));
      const torch::NoGradGuard no_grad;
      net->scale.fill_(5);
    }
    const std::string message =
        message_of<c10::ValueError>([&] { whole.close(); });
    if (mesh.rank() == 0) {
      expect_in(message,
                "the parameter 'block0.up.bias' [13] of Float was replaced by "
                "a tensor [14]");
    }
    EXPECT_EQ(full_parameter(*net, "scale").item<float>(), 5);
    backward(net);
  });
}

}  // namespace
}  // namespace accordion
