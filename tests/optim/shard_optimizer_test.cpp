// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/optim/shard_optimizer.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/optim/optimizer_state.h"
#include "accordion/optim/parameters.h"
#include "tests/fsdp/models.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

namespace optim = torch::optim;
using testing::on_ranks;
using testing::seeded;
using Net = Unit<testing::UnitNet>;
using OptimizerPtr = std::unique_ptr<optim::Optimizer>;
using Groups = std::vector<optim::OptimizerParamGroup>;

constexpr int kBatch = 12;  // divides by each world size

struct Algorithm {
  const char* name;
  std::function<OptimizerPtr(const Groups&)> make;
};

template <class T, class Options>
Algorithm algorithm(const char* name, Options options) {
  return {name, [options](const Groups& groups) -> OptimizerPtr {
            return std::make_unique<T>(groups, options);
          }};
}

const std::vector<Algorithm>& algorithms() {
  static const std::vector<Algorithm> all = {
      algorithm<optim::SGD>("SGD", optim::SGDOptions(0.1)),
      algorithm<optim::SGD>(
          "SGD with momentum",
          optim::SGDOptions(0.05).momentum(0.9).weight_decay(0.1)),
      algorithm<optim::SGD>(
          "SGD with Nesterov momentum",
          optim::SGDOptions(0.05).momentum(0.9).nesterov(true)),
      algorithm<optim::Adam>("Adam", optim::AdamOptions(0.01)),
      algorithm<optim::AdamW>("AdamW with amsgrad",
                              optim::AdamWOptions(0.01).amsgrad(true)),
      algorithm<optim::RMSprop>(
          "centered RMSprop",
          optim::RMSpropOptions(0.01).centered(true).momentum(0.5).eps(1e-3)),
      algorithm<optim::Adagrad>(
          "Adagrad",
          optim::AdagradOptions(0.05).initial_accumulator_value(0.1))};
  return all;
}

Groups one_group(const torch::nn::Module& net) {
  return {{parameters(net)}};
}

void train(auto& net, optim::Optimizer& optimizer, int from, int to,
           int rank = 0, int world = 1) {
  for (int step = from; step < to; ++step) {
    optimizer.zero_grad();
    const auto rows = [&](const torch::Tensor& batch) {
      return testing::rows_of(batch, rank, world);
    };
    testing::loss_of(net(rows(testing::batch_of(step, kBatch))),
                     rows(testing::target_of(step, kBatch)))
        .backward();
    optimizer.step();
  }
}

/// When the optimizer is made, as seen from fully_shard.
enum class Made { Before, StepsBefore, After };

/// Trains six steps, the first three of them before sharding where asked.
void expect_parity(const Algorithm& algorithm, Made made) {
  auto plain = seeded<testing::PlainNet>();
  const auto reference = algorithm.make(one_group(*plain));
  train(plain, *reference, 0, 6);
  for (const int world : {1, 2, 3}) {
    on_ranks(world, [&](const DeviceMesh& mesh) {
      auto net = seeded<Net>();
      OptimizerPtr optimizer;
      const int first = made == Made::StepsBefore ? 3 : 0;
      if (made == Made::After) {
        fully_shard(net, mesh);
        optimizer = algorithm.make(one_group(*net));
      } else {
        optimizer = algorithm.make(one_group(*net));
        train(net, *optimizer, 0, first);
        fully_shard(net, *optimizer, mesh);
      }
      train(net, *optimizer, first, 6, mesh.rank(), world);
      for (const auto& expected : plain->named_parameters()) {
        EXPECT_TRUE(torch::allclose(full_parameter(*net, expected.key()),
                                    expected.value(), 1e-5, 1e-6))
            << algorithm.name << ", " << expected.key() << ", " << world
            << " ranks";
      }
    });
  }
}

TEST(ShardOptimizer, MadeBeforeShardingFollowsOneProcess) {
  for (const auto& algorithm : algorithms()) {
    expect_parity(algorithm, Made::Before);
  }
}

TEST(ShardOptimizer, SteppedBeforeShardingFollowsOneProcess) {
  for (const auto& algorithm : algorithms()) {
    expect_parity(algorithm, Made::StepsBefore);
  }
}

TEST(ShardOptimizer, MadeAfterShardingFollowsOneProcess) {
  for (const auto& algorithm : algorithms()) {
    expect_parity(algorithm, Made::After);
  }
}

/// Matrices learn slowly, vectors fast.
Groups two_groups(const torch::nn::Module& net, double slow, double fast) {
  std::vector<torch::Tensor> matrices, vectors;
  for (const auto& parameter : parameters(net)) {
    (parameter.dim() > 1 ? matrices : vectors).push_back(parameter);
  }
  const auto options = [](double lr) {
    return std::make_unique<optim::AdamOptions>(optim::AdamOptions(lr));
  };
  return {{matrices, options(slow)}, {vectors, options(fast)}};
}

TEST(ShardOptimizer, KeepsParameterGroupsAndTheirOptions) {
  auto plain = seeded<testing::PlainNet>();
  optim::Adam reference(two_groups(*plain, 0.001, 0.05));
  train(plain, reference, 0, 6);
  on_ranks(3, [&](const DeviceMesh& mesh) {
    auto net = seeded<Net>();
    optim::Adam optimizer(two_groups(*net, 0.001, 0.05));
    train(net, optimizer, 0, 3);
    fully_shard(net, optimizer, mesh);
    ASSERT_EQ(optimizer.param_groups().size(), 2U);
    EXPECT_EQ(optimizer.param_groups()[1].options().get_lr(), 0.05);
    train(net, optimizer, 3, 6, mesh.rank(), 3);
    for (const auto& expected : plain->named_parameters()) {
      EXPECT_TRUE(torch::allclose(full_parameter(*net, expected.key()),
                                  expected.value(), 1e-5, 1e-6))
          << expected.key();
    }
  });
}

TEST(ShardOptimizer, StateShrinksToThePieces) {
  on_ranks(3, [](const DeviceMesh& mesh) {
    auto net = seeded<Net>();
    optim::Adagrad optimizer(net->parameters());
    fully_shard(net, optimizer, mesh);
    std::int64_t numel = 0;
    for (const auto& [tensor, state] : optimizer.state()) {
      const auto tensors = state_tensors(*state);
      for (const auto& [field, sum] : *tensors) {
        EXPECT_EQ(sum->storage().nbytes(), sum->nbytes());
        numel += sum->numel();
      }
    }
    std::int64_t pieces = 0;
    for (const auto& local : local_parameters(*net)) {
      pieces += local.piece.numel();
    }
    EXPECT_EQ(numel, pieces);
  });
}

struct SharedImpl : torch::nn::Module {
  SharedImpl() {
    block = register_module("encoder", testing::Block());
    register_module("decoder", block);
  }
  torch::Tensor forward(torch::Tensor x) {
    return block(block(x)).slice(1, 0, 3);
  }
  testing::Block block{nullptr};
};
TORCH_MODULE(Shared);

TEST(Parameters, ListsASharedModuleOnce) {
  Shared net;
  EXPECT_EQ(net->parameters().size(), 8U);
  EXPECT_EQ(parameters(net).size(), 4U);
  EXPECT_TRUE(parameters(net)[0].is_same(net->block->up->weight));
}

/// The message of fully_shard with an optimizer that it refuses; the net must
/// be as before.
template <class Make>
std::string refusal(Make&& make) {
  std::string message;
  on_ranks(1, [&](const DeviceMesh& mesh) {
    auto net = seeded<Net>();
    const OptimizerPtr optimizer = make(net);
    message = testing::message_of<c10::ValueError>(
        [&] { fully_shard(net, *optimizer, mesh); });
    EXPECT_THROW(local_parameters(*net), c10::ValueError)
        << "sharded in spite of the error";
  });
  return message;
}

TEST(ShardOptimizer, RefusesLbfgs) {
  const auto message = refusal([](Net& net) {
    return std::make_unique<optim::LBFGS>(net->parameters());
  });
  EXPECT_NE(message.find("LBFGS takes dot products"), std::string::npos)
      << message;
}

TEST(ShardOptimizer, RefusesParametersListedTwice) {
  const auto message = refusal([](Net& net) {
    auto twice = net->parameters();
    twice.push_back(net->head->bias);
    return std::make_unique<optim::SGD>(twice, 0.1);
  });
  EXPECT_NE(message.find("torch::optim::SGD lists parameter 'head.bias' twice"),
            std::string::npos)
      << message;
}

TEST(ShardOptimizer, RefusesParametersOfAnotherModule) {
  const auto message = refusal([](Net&) {
    return std::make_unique<optim::SGD>(
        std::vector<torch::Tensor>{torch::ones({5})}, 0.1);
  });
  EXPECT_NE(message.find("group 0 of torch::optim::SGD lists a tensor [5]"),
            std::string::npos)
      << message;
}

struct RowState : optim::OptimizerCloneableParamState<RowState>,
                  ListsStateTensors {
  torch::Tensor rows;
  std::vector<StateTensor> state_tensors() override {
    return {{"rows", &rows}};
  }
};
struct OpaqueState : optim::OptimizerCloneableParamState<OpaqueState> {};

TEST(ShardOptimizer, RefusesStateThatItCannotCut) {
  const auto with_state = [](auto make_state) {
    return [make_state](Net& net) {
      auto optimizer = std::make_unique<optim::SGD>(net->parameters(), 0.1);
      optimizer->state()[net->head->weight.unsafeGetTensorImpl()] =
          make_state();
      return optimizer;
    };
  };
  const auto rows = refusal(with_state([] {
    auto state = std::make_unique<RowState>();
    state->rows = torch::ones({3});
    return state;
  }));
  EXPECT_NE(rows.find("field 'rows' of torch::optim::SGD for parameter "
                      "'head.weight' has shape [3]"),
            std::string::npos)
      << rows;
  const auto opaque =
      refusal(with_state([] { return std::make_unique<OpaqueState>(); }));
  EXPECT_NE(opaque.find("OpaqueState for parameter 'head.weight', of which "
                        "Accordion knows no fields"),
            std::string::npos)
      << opaque;
  const auto meta = refusal(with_state([] {
    auto state = std::make_unique<optim::AdagradParamState>();
    state->sum(torch::ones({3, 7}, torch::kMeta));
    return state;
  }));
  EXPECT_NE(meta.find("field 'sum' of torch::optim::SGD for parameter "
                      "'head.weight' is on meta"),
            std::string::npos)
      << meta;
}

TEST(ShardOptimizer, CutsTheStateOfAUsersOptimizer) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    auto net = seeded<Net>();
    optim::SGD optimizer(net->parameters(), 0.1);
    auto state = std::make_unique<RowState>();
    state->rows = torch::arange(21).view({3, 7});
    const auto& rows = state->rows;
    optimizer.state()[net->head->weight.unsafeGetTensorImpl()] =
        std::move(state);
    fully_shard(net, optimizer, mesh);
    for (const auto& local : local_parameters(*net)) {
      if (local.name == "head.weight") {
        EXPECT_EQ(rows.sizes(), local.parameter.sizes());
        EXPECT_TRUE(torch::equal(rows.reshape({-1}),
                                 torch::arange(local.begin, local.end)));
      }
    }
  });
}

}  // namespace
}  // namespace accordion
