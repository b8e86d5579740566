// SPDX-License-Identifier: BSD-3-Clause
// Programs that do more than one forward and one backward a step: each gives
// the gradients of the same program without sharding.
#include <functional>

#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/module/activation_checkpoint.h"
#include "tests/fsdp/models.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using testing::batch_of;
using testing::on_ranks;
using testing::seeded;

/// A net as the programs below see it, sharded or not.
using Forward = std::function<torch::Tensor(torch::Tensor)>;
struct Subject {
  Forward net;
  std::function<torch::Tensor(int block, torch::Tensor)> block;
  std::function<void()> zero_grad;
};
using Program = std::function<void(const Subject&)>;

template <class Net>
Subject subject_of(Net& net) {
  return {[&net](torch::Tensor x) { return net(x); },
          [&net](int block, torch::Tensor x) {
            return net->blocks[static_cast<std::size_t>(block)](x);
          },
          [&net] { net->zero_grad(); }};
}

/// Runs `program` four times (recorded, replayed, replayed, …) on a plain net
/// and on two ranks, all with the same data, and compares all gradients.
void expect_same_gradients(
    const Program& program, const FsdpOptions& options = {},
    const std::function<void(torch::nn::Module&)>& prepare =
        [](torch::nn::Module&) {}) {
  auto plain = seeded<testing::PlainNet>();
  prepare(*plain);
  std::vector<Unit<testing::UnitNet>> nets = {seeded<Unit<testing::UnitNet>>(),
                                              seeded<Unit<testing::UnitNet>>()};
  program(subject_of(plain));
  on_ranks(2, [&](const DeviceMesh& mesh) {
    auto& net = nets[static_cast<std::size_t>(mesh.rank())];
    prepare(*net);
    fully_shard(net, mesh, options);
    for (int step = 0; step < 4; ++step) {
      net->zero_grad();
      program(subject_of(net));
      for (const auto& parameter : plain->named_parameters()) {
        if (!parameter.value().requires_grad()) {
          continue;
        }
        const auto expected = parameter.value().grad().defined()
                                  ? parameter.value().grad()
                                  : torch::zeros_like(parameter.value());
        const auto got = full_gradient(*net, parameter.key());
        EXPECT_TRUE(torch::allclose(got, expected, 1e-5, 1e-6))
            << parameter.key() << ", step " << step << ", largest difference "
            << (got - expected).abs().max().item<float>();
      }
    }
  });
}

TEST(Programs, EvaluationBetweenForwardAndBackward) {
  expect_same_gradients([](const Subject& s) {
    const auto loss = s.net(batch_of(0, 4)).square().mean();
    {
      const torch::NoGradGuard no_grad;
      s.net(batch_of(1, 6));
    }
    loss.backward();
  });
}

TEST(Programs, EvaluationBetweenSteps) {
  expect_same_gradients([](const Subject& s) {
    s.net(batch_of(0, 4)).square().mean().backward();
    const torch::NoGradGuard no_grad;
    s.net(batch_of(1, 6));
  });
}

TEST(Programs, ForwardWithGradButWithoutBackward) {
  expect_same_gradients([](const Subject& s) {
    s.net(batch_of(1, 6));
    s.net(batch_of(0, 4)).square().mean().backward();
  });
}

TEST(Programs, SeveralForwardsBeforeOneBackward) {
  expect_same_gradients([](const Subject& s) {
    const auto a = s.net(batch_of(0, 4)).square().mean();
    const auto b = s.net(batch_of(1, 4)).square().mean();
    (a + 2 * b).backward();
  });
}

TEST(Programs, SeveralForwardsAndABackwardForEach) {
  expect_same_gradients([](const Subject& s) {
    const auto a = s.net(batch_of(0, 4)).square().mean();
    const auto b = s.net(batch_of(1, 4)).square().mean();
    a.backward();
    b.backward();
  });
}

TEST(Programs, AccumulationOverMicrobatches) {
  expect_same_gradients([](const Subject& s) {
    for (int i = 0; i < 3; ++i) {
      (s.net(batch_of(i, 4)).square().mean() / 3).backward();
    }
  });
}

TEST(Programs, BackwardTwiceOnARetainedGraph) {
  expect_same_gradients([](const Subject& s) {
    const auto loss = s.net(batch_of(0, 4)).square().mean();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
  });
}

TEST(Programs, UnitCalledTwiceInOneForward) {
  expect_same_gradients([](const Subject& s) {
    auto x = batch_of(0, 4);
    x = s.block(0, x);
    x = s.block(1, x);
    x = s.block(0, x);
    x.square().mean().backward();
  });
}

/// Runs something between its two layers.
struct AroundImpl : torch::nn::Module {
  AroundImpl() {
    up = register_module(
        "up", torch::nn::Linear(testing::kFeatures, testing::kFeatures));
    down = register_module(
        "down", torch::nn::Linear(testing::kFeatures, testing::kFeatures));
  }
  torch::Tensor forward(torch::Tensor x,
                        std::function<torch::Tensor(torch::Tensor)> inside) {
    x = torch::tanh(up(x));
    return down(inside ? inside(x) : x);
  }
  torch::nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(Around);

TEST(Programs, UnitThatCallsItself) {
  const auto run = [](auto& net) {
    const auto inner = [&net](torch::Tensor x) { return net(x, nullptr); };
    net(batch_of(0, 4), inner).square().mean().backward();
  };
  auto plain = testing::seeded<Around>();
  run(plain);
  std::vector<Unit<Around>> nets{testing::seeded<Unit<Around>>(),
                                 testing::seeded<Unit<Around>>()};
  on_ranks(2, [&](const DeviceMesh& mesh) {
    auto& net = nets[static_cast<std::size_t>(mesh.rank())];
    fully_shard(net, mesh, {.reshard_after_forward = true});
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      run(net);
      for (const auto& parameter : plain->named_parameters()) {
        EXPECT_TRUE(torch::allclose(full_gradient(*net, parameter.key()),
                                    parameter.value().grad(), 1e-5, 1e-7))
            << parameter.key() << ", step " << step;
      }
    }
  });
}

TEST(Programs, UnitsThatNoLossDependsOn) {
  expect_same_gradients([](const Subject& s) {
    s.block(2, batch_of(1, 4));
    s.block(0, batch_of(0, 4)).square().mean().backward();
  });
}

TEST(Programs, StepsThatAlternateBetweenTwoPrograms) {
  expect_same_gradients([](const Subject& s) {
    thread_local int step = 0;  // a rank is a thread
    auto x = s.block(0, batch_of(0, 4));
    if (step++ % 2 == 1) {
      const torch::NoGradGuard no_grad;
      s.block(1, x);
    }
    s.block(2, x).square().mean().backward();
  });
}

/// Uses one of its two parameters, by turns.
struct TurnsImpl : torch::nn::Module {
  TurnsImpl() {
    even = register_parameter("even", torch::ones({9}));
    odd = register_parameter("odd", torch::ones({9}));
  }
  torch::Tensor forward(torch::Tensor x) {
    return x * (calls++ % 2 == 0 ? even : odd);
  }
  torch::Tensor even, odd;
  int calls = 0;
};
TORCH_MODULE(Turns);

TEST(Programs, ParametersThatBackwardDoesNotReachCountAsZero) {
  // The unit ends with the backward, and its slot still holds the gradient that
  // the unused parameter had a step ago.
  on_ranks(2, [](const DeviceMesh& mesh) {
    Unit<Turns> net;
    fully_shard(net, mesh);
    for (int step = 0; step < 4; ++step) {
      net->zero_grad();
      net(torch::full({9}, 3.0F)).sum().backward();
      const std::string used = step % 2 == 0 ? "even" : "odd";
      const std::string unused = step % 2 == 0 ? "odd" : "even";
      EXPECT_TRUE(
          torch::equal(full_gradient(*net, used), torch::full({9}, 3.0F)))
          << "step " << step;
      EXPECT_TRUE(torch::equal(full_gradient(*net, unused), torch::zeros({9})))
          << "step " << step;
    }
  });
}

TEST(Programs, InputsThatRequireGrad) {
  expect_same_gradients([](const Subject& s) {
    auto x = batch_of(0, 4).requires_grad_();
    s.net(x).square().mean().backward();
    EXPECT_TRUE(x.grad().defined());
  });
}

void freeze(torch::nn::Module& net, const std::string& prefix) {
  for (auto& parameter : net.named_parameters()) {
    if (parameter.key().starts_with(prefix)) {
      parameter.value().set_requires_grad(false);
    }
  }
}

TEST(Programs, FrozenUnitInTheMiddle) {
  expect_same_gradients(
      [](const Subject& s) {
        s.net(batch_of(0, 4)).square().mean().backward();
      },
      {}, [](torch::nn::Module& net) { freeze(net, "block1"); });
}

TEST(Programs, FrozenAndTrainableParametersInOneUnit) {
  expect_same_gradients(
      [](const Subject& s) {
        s.net(batch_of(0, 4)).square().mean().backward();
      },
      {}, [](torch::nn::Module& net) { freeze(net, "block1.up"); });
}

// ---- Without activations ---------------------------------------------------

FsdpOptions checkpointed(int every = 1) {
  FsdpOptions options;
  options.activation_checkpointing = ActivationCheckpointing{.every = every};
  return options;
}

TEST(CheckpointedPrograms, OneForwardAndBackward) {
  for (const int every : {1, 2}) {
    expect_same_gradients(
        [](const Subject& s) {
          s.net(batch_of(0, 4)).square().mean().backward();
        },
        checkpointed(every));
  }
}

TEST(CheckpointedPrograms, SeveralForwardsBeforeOneBackward) {
  expect_same_gradients(
      [](const Subject& s) {
        const auto a = s.net(batch_of(0, 4)).square().mean();
        const auto b = s.net(batch_of(1, 4)).square().mean();
        (a + 2 * b).backward();
      },
      checkpointed());
}

TEST(CheckpointedPrograms, ABackwardForEachForwardAndEvaluationBetween) {
  expect_same_gradients(
      [](const Subject& s) {
        const auto a = s.net(batch_of(0, 4)).square().mean();
        const auto b = s.net(batch_of(1, 4)).square().mean();
        {
          const torch::NoGradGuard no_grad;
          s.net(batch_of(1, 6));
        }
        a.backward();
        b.backward();
      },
      checkpointed());
}

TEST(CheckpointedPrograms, FrozenUnits) {
  for (const char* frozen : {"block0", "block1", "block1.up", "block"}) {
    expect_same_gradients(
        [](const Subject& s) {
          s.net(batch_of(0, 4)).square().mean().backward();
        },
        checkpointed(),
        [frozen](torch::nn::Module& net) { freeze(net, frozen); });
  }
}

TEST(CheckpointedPrograms, UnitTwiceInARow) {
  expect_same_gradients(
      [](const Subject& s) {
        const auto x = s.block(1, s.block(1, s.block(0, batch_of(0, 4))));
        s.block(2, x).square().mean().backward();
      },
      checkpointed());
}

TEST(CheckpointedPrograms, ACallOfAUnit) {
  expect_same_gradients([](const Subject& s) {
    auto x = s.block(0, batch_of(0, 4));
    x = checkpoint([&s](const torch::Tensor& x) { return s.block(1, x); }, x);
    s.block(2, x).square().mean().backward();
  });
}

TEST(CheckpointedPrograms, ACallOfSeveralUnitsSomeWithoutActivations) {
  for (const FsdpOptions& options :
       {FsdpOptions(), checkpointed(), checkpointed(2)}) {
    expect_same_gradients(
        [](const Subject& s) {
          const auto both = [&s](const torch::Tensor& x) {
            return s.block(1, s.block(0, x));
          };
          // The tokens of a batch require no grad.
          const auto x = checkpoint(both, batch_of(0, 4));
          s.block(2, x).square().mean().backward();
        },
        options);
  }
}

TEST(Programs, TheStepAfterAForwardThatThrew) {
  std::vector<Unit<testing::UnitNet>> nets = {seeded<Unit<testing::UnitNet>>(),
                                              seeded<Unit<testing::UnitNet>>()};
  on_ranks(2, [&](const DeviceMesh& mesh) {
    auto& net = nets[static_cast<std::size_t>(mesh.rank())];
    fully_shard(net, mesh);
    const auto step = [&] {
      net->zero_grad();
      net(batch_of(0, 4)).square().mean().backward();
      return full_gradient(*net, "block0.up.weight");
    };
    const auto fail = [&] {
      EXPECT_THROW(net(torch::ones({2, testing::kFeatures + 1})), c10::Error);
    };
    fail();  // the first pass
    const auto expected = step();
    for (int repeat = 0; repeat < 3; ++repeat) {
      fail();
      EXPECT_TRUE(torch::equal(step(), expected)) << "repeat " << repeat;
    }
  });
}

TEST(Programs, TheSameStepTwiceIsBitForBitTheSame) {
  for (const int world : {2, 3}) {
    std::vector<torch::Tensor> runs;
    for (int run = 0; run < 2; ++run) {
      std::vector<Unit<testing::UnitNet>> nets;
      for (int rank = 0; rank < world; ++rank) {
        nets.push_back(seeded<Unit<testing::UnitNet>>());
      }
      on_ranks(world, [&](const DeviceMesh& mesh) {
        auto& net = nets[static_cast<std::size_t>(mesh.rank())];
        fully_shard(net, mesh);
        net(testing::rows_of(batch_of(0, 12), mesh.rank(), world))
            .square()
            .mean()
            .backward();
        const auto gradient = full_gradient(*net, "block0.up.weight");
        if (mesh.rank() == 0) {
          runs.push_back(gradient);
        }
      });
    }
    EXPECT_TRUE(torch::equal(runs.at(0), runs.at(1))) << world << " ranks";
  }
}

}  // namespace
}  // namespace accordion
