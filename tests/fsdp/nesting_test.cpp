// SPDX-License-Identifier: BSD-3-Clause
// Units inside units, and units without parameters of their own.
#include <map>

#include <torch/nn/modules/linear.h>

#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "tests/fsdp/logging_communicator.h"
#include "tests/fsdp/models.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

/// Two blocks that are units, and a gate of its own that is used before,
/// between and after them.
template <template <class> class Wrap>
struct StageImpl : torch::nn::Module {
  StageImpl() {
    first = this->register_module("first", Wrap<testing::Block>());
    second = this->register_module("second", Wrap<testing::Block>());
    gate = this->register_parameter(
        "gate", torch::linspace(0.5, 1.5, testing::kFeatures));
  }
  torch::Tensor forward(torch::Tensor x) {
    return second(first(x * gate) * gate) * gate;
  }
  Wrap<testing::Block> first{nullptr}, second{nullptr};
  torch::Tensor gate;
};
struct PlainStage : torch::nn::ModuleHolder<StageImpl<testing::Plain>> {
  using ModuleHolder::ModuleHolder;
};
struct UnitStage : torch::nn::ModuleHolder<StageImpl<Unit>> {
  using ModuleHolder::ModuleHolder;
};

/// A root without parameters of its own around two stages.
template <class Stage>
struct TowerImpl : torch::nn::Module {
  TowerImpl() {
    lower = register_module("lower", Stage());
    upper = register_module("upper", Stage());
  }
  torch::Tensor forward(torch::Tensor x) { return upper(lower(x)); }
  Stage lower{nullptr}, upper{nullptr};
};
struct PlainTower : torch::nn::ModuleHolder<TowerImpl<PlainStage>> {
  using ModuleHolder::ModuleHolder;
};
struct UnitTower : torch::nn::ModuleHolder<TowerImpl<Unit<UnitStage>>> {
  using ModuleHolder::ModuleHolder;
};

TEST(NestedUnits, GiveTheGradientsOfThePlainModules) {
  auto plain = testing::seeded<PlainTower>();
  plain(testing::batch_of(0, 4)).square().mean().backward();
  for (const int world : {1, 2, 3}) {
    for (const int way : {0, 1, 2, 3}) {
      testing::on_ranks(world, [&](const DeviceMesh& mesh) {
        auto net = testing::seeded<Unit<UnitTower>>();
        FsdpOptions options;
        options.reshard_after_forward = way % 2 == 0;
        options.prefetch = 2;
        if (way >= 2) {  // stages and the blocks in them
          options.activation_checkpointing = ActivationCheckpointing();
        }
        fully_shard(net, mesh, options);
        for (int step = 0; step < 4; ++step) {
          net->zero_grad();
          net(testing::batch_of(0, 4)).square().mean().backward();
          for (const auto& parameter : plain->named_parameters()) {
            EXPECT_TRUE(torch::allclose(full_gradient(*net, parameter.key()),
                                        parameter.value().grad(), 1e-5, 1e-6))
                << parameter.key() << ", step " << step << ", " << world
                << " ranks";
          }
        }
        EXPECT_EQ(validate(step_schedule(*net)), "");
      });
    }
  }
}

/// Returns what the unit inside returned.
struct OuterImpl : torch::nn::Module {
  OuterImpl() {
    inner = register_module("inner", Unit<testing::Block>());
    gate = register_parameter("gate", torch::ones({testing::kFeatures}));
  }
  torch::Tensor forward(torch::Tensor x) { return inner(x * gate); }
  Unit<testing::Block> inner{nullptr};
  torch::Tensor gate;
};
TORCH_MODULE(Outer);

TEST(NestedUnits, BackwardOfTheOuterBeginsBeforeThatOfTheInner) {
  testing::on_ranks(2, [](const DeviceMesh& mesh) {
    auto net = testing::seeded<Unit<Outer>>();
    fully_shard(net, mesh);
    for (int step = 0; step < 3; ++step) {
      net(testing::batch_of(0, 4)).square().mean().backward();
      std::vector<std::string> backwards;
      const StepSchedule schedule = step_schedule(*net);
      for (const Action& action : schedule.actions) {
        if (action.kind == ActionKind::Backward) {
          backwards.push_back(
              schedule.units[static_cast<std::size_t>(action.unit)].name);
        }
      }
      EXPECT_EQ(backwards, (std::vector<std::string>{"", "inner"}));
    }
  });
}

TEST(NestedUnits, AreGatheredOnceInABackwardOfTwoCheckpointedForwards) {
  testing::on_ranks(2, [](const DeviceMesh& threads) {
    const auto logging = std::make_shared<testing::LoggingCommunicator>(
        std::shared_ptr<Communicator>(std::make_shared<DeviceMesh>(threads),
                                      &threads.world()));
    auto net = testing::seeded<Unit<UnitTower>>();
    fully_shard(net, DeviceMesh::over(logging),
                {.activation_checkpointing = ActivationCheckpointing{
                     .units = wrap_types<testing::BlockImpl>()}});
    for (int step = 0; step < 4; ++step) {
      net->zero_grad();
      const auto loss = net(testing::batch_of(0, 4)).square().mean() +
                        net(testing::batch_of(1, 4)).square().mean();
      logging->log.clear();
      loss.backward();
      std::map<std::string, int> gathers;
      for (const std::string& call : logging->log) {
        if (call.starts_with("gather ") &&
            call.find("turn") == std::string::npos) {
          ++gathers[call];
        }
      }
      // Stages and blocks; two are whole, or ahead, when a replayed one begins.
      EXPECT_EQ(gathers.size(), step == 0 ? 6U : 4U) << "step " << step;
      for (const auto& [call, times] : gathers) {
        EXPECT_EQ(times, 1) << call << ", step " << step;
      }
    }
  });
}

TEST(NestedUnits, PaddingOfGradientsStaysZeroWhenUnitsShareSlots) {
  // Norms are taken over whole shards: what another unit left in a slot between
  // this one's parameters must not count.
  testing::on_ranks(3, [](const DeviceMesh& mesh) {
    auto net = testing::seeded<Unit<UnitTower>>();
    fully_shard(net, mesh);
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      net(testing::batch_of(0, 4)).square().mean().backward();
      for (const FlatShard& shard : flat_shards(*net)) {
        double pieces = 0;
        for (const LocalParameter& piece : shard.pieces) {
          pieces += piece.gradient.abs().sum(torch::kDouble).item<double>();
        }
        EXPECT_NEAR(shard.gradients.abs().sum(torch::kDouble).item<double>(),
                    pieces, 1e-9)
            << shard.pieces.front().name << ", step " << step;
      }
    }
  });
}

TEST(NestedUnits, AllocateNothingFromTheThirdStepOn) {
  testing::on_ranks(2, [](const DeviceMesh& mesh) {
    auto net = testing::seeded<Unit<UnitTower>>();
    fully_shard(net, mesh);
    const auto step = [&net] {
      net->zero_grad();
      net(testing::batch_of(0, 4)).square().mean().backward();
    };
    step();
    step();
    const auto calls = mesh.world().counters().calls_of(CommOp::Allocate);
    step();
    step();
    EXPECT_EQ(mesh.world().counters().calls_of(CommOp::Allocate), calls);
  });
}

/// Calls its block with an input that does not fit, and goes on.
template <template <class> class Wrap>
struct TolerantImpl : torch::nn::Module {
  TolerantImpl() {
    block = this->register_module("block", Wrap<testing::Block>());
    gate = this->register_parameter("gate", torch::ones(testing::kFeatures));
  }
  torch::Tensor forward(torch::Tensor x) {
    try {
      block(torch::ones({1, testing::kFeatures + 1}));
    } catch (const c10::Error&) {
    }
    return block(x) * gate;
  }
  Wrap<testing::Block> block{nullptr};
  torch::Tensor gate;
};
struct PlainTolerant : torch::nn::ModuleHolder<TolerantImpl<testing::Plain>> {
  using ModuleHolder::ModuleHolder;
};
struct UnitTolerant : torch::nn::ModuleHolder<TolerantImpl<Unit>> {
  using ModuleHolder::ModuleHolder;
};

TEST(NestedUnits, OuterForwardMayCatchWhatAnInnerOneThrew) {
  auto plain = testing::seeded<PlainTolerant>();
  plain(testing::batch_of(0, 4)).square().mean().backward();
  testing::on_ranks(2, [&](const DeviceMesh& mesh) {
    auto net = testing::seeded<Unit<UnitTolerant>>();
    fully_shard(net, mesh);
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      net(testing::batch_of(0, 4)).square().mean().backward();
      EXPECT_TRUE(torch::allclose(full_gradient(*net, "block.up.weight"),
                                  plain->block->up->weight.grad(), 1e-5, 1e-6))
          << "step " << step;
    }
  });
}

}  // namespace
}  // namespace accordion
