// SPDX-License-Identifier: BSD-3-Clause
// Sharded training follows a single process that sees the whole batch.
#include <cmath>
#include <map>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/optim/adamw.h"
#include "accordion/optim/clip_grad_norm.h"
#include "tests/fsdp/models.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using testing::mean_over_ranks;
using testing::on_ranks;
using testing::seeded;

constexpr int kSteps = 6;
constexpr int kRows = 12;  // divides by 1, 2, 3, 4
// Relative: sums over the batch are taken in another order than by one process.
constexpr double kLossTolerance = 1e-6;
constexpr double kParameterTolerance = 2e-5;

struct Curve {
  std::vector<double> losses;
  std::vector<double> norms;
  std::map<std::string, torch::Tensor> parameters;
};

torch::optim::AdamWOptions adamw_options() {
  return torch::optim::AdamWOptions(1e-2).weight_decay(0.1);
}

Curve single_process() {
  auto net = seeded<testing::PlainNet>();
  torch::optim::AdamW optimizer(net->parameters(), adamw_options());
  Curve curve;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const auto loss = testing::loss_of(net(testing::batch_of(step, kRows)),
                                       testing::target_of(step, kRows));
    loss.backward();
    curve.norms.push_back(
        torch::nn::utils::clip_grad_norm_(net->parameters(), 0.5));
    optimizer.step();
    curve.losses.push_back(loss.item<double>());
  }
  for (const auto& parameter : net->named_parameters()) {
    curve.parameters[parameter.key()] = parameter.value().detach().clone();
  }
  return curve;
}

void expect_near_relative(double got, double expected, double tolerance,
                          const std::string& what) {
  EXPECT_NEAR(got, expected, tolerance * std::max(std::abs(expected), 1e-3))
      << what;
}

void train_and_compare(const DeviceMesh& mesh, Unit<testing::UnitNet>& net,
                       const Curve& expected, const std::function<void()>& step,
                       const std::function<void()>& zero) {
  for (int i = 0; i < kSteps; ++i) {
    const auto mine = [&](const torch::Tensor& rows) {
      return testing::rows_of(rows, mesh.rank(), mesh.world_size());
    };
    zero();
    const auto loss = testing::loss_of(net(mine(testing::batch_of(i, kRows))),
                                       mine(testing::target_of(i, kRows)));
    loss.backward();
    const double norm = clip_grad_norm_(net, 0.5);
    step();
    const auto at = "step " + std::to_string(i);
    expect_near_relative(mean_over_ranks(mesh, loss.item<double>()),
                         expected.losses[static_cast<std::size_t>(i)],
                         kLossTolerance, "loss, " + at);
    expect_near_relative(norm, expected.norms[static_cast<std::size_t>(i)],
                         kLossTolerance, "norm, " + at);
  }
  for (const auto& [name, value] : expected.parameters) {
    const auto got = full_parameter(*net, name);
    EXPECT_TRUE(
        torch::allclose(got, value, kParameterTolerance, kParameterTolerance))
        << name << ": largest difference "
        << (got - value).abs().max().item<double>();
  }
}

struct Setting {
  int world;
  Strategy strategy;
  int prefetch;
  std::optional<bool> reshard_after_forward;
};

void PrintTo(const Setting& s, std::ostream* out) {
  *out << s.world << " ranks, "
       << (s.strategy == Strategy::FullShard ? "full_shard" : "no_shard")
       << ", prefetch " << s.prefetch << ", reshard_after_forward "
       << (s.reshard_after_forward ? (*s.reshard_after_forward ? "on" : "off")
                                   : "unset");
}

class Parity : public ::testing::TestWithParam<Setting> {};

TEST_P(Parity, FollowsASingleProcess) {
  const Setting setting = GetParam();
  const Curve expected = single_process();
  auto nets = std::vector<Unit<testing::UnitNet>>();
  for (int rank = 0; rank < setting.world; ++rank) {
    nets.push_back(seeded<Unit<testing::UnitNet>>());
  }
  on_ranks(setting.world, [&](const DeviceMesh& mesh) {
    auto& net = nets[static_cast<std::size_t>(mesh.rank())];
    fully_shard(net, mesh,
                {.strategy = setting.strategy,
                 .reshard_after_forward = setting.reshard_after_forward,
                 .prefetch = setting.prefetch});
    AdamW optimizer(net, {.lr = 1e-2, .weight_decay = 0.1});
    train_and_compare(
        mesh, net, expected, [&] { optimizer.step(); },
        [&] { optimizer.zero_grad(); });
  });
}

std::vector<Setting> settings() {
  std::vector<Setting> result;
  for (const int world : {1, 2, 3, 4}) {
    for (const auto strategy : {Strategy::FullShard, Strategy::NoShard}) {
      result.push_back({world, strategy, 1, std::nullopt});
    }
  }
  for (const int prefetch : {0, 2, 5}) {
    result.push_back({2, Strategy::FullShard, prefetch, std::nullopt});
  }
  result.push_back({3, Strategy::FullShard, 1, false});
  result.push_back({3, Strategy::FullShard, 2, true});
  return result;
}
INSTANTIATE_TEST_SUITE_P(Settings, Parity, ::testing::ValuesIn(settings()));

TEST(ParityWithStockOptimizer, MadeBeforeSharding) {
  const Curve expected = single_process();
  auto nets = std::vector<Unit<testing::UnitNet>>();
  for (int rank = 0; rank < 3; ++rank) {
    nets.push_back(seeded<Unit<testing::UnitNet>>());
  }
  on_ranks(3, [&](const DeviceMesh& mesh) {
    auto& net = nets[static_cast<std::size_t>(mesh.rank())];
    torch::optim::AdamW optimizer(net->parameters(), adamw_options());
    fully_shard(net, mesh);
    train_and_compare(
        mesh, net, expected, [&] { optimizer.step(); },
        [&] { optimizer.zero_grad(); });
  });
}

// ---- Stock LibTorch modules ------------------------------------------------

/// Trains `make(wrap)`'s net on one process and on ranks with SGD and compares
/// the losses of all steps.
template <class MakePlain, class MakeUnit>
void expect_same_losses(int world, MakePlain&& make_plain, MakeUnit&& make_unit,
                        const torch::Tensor& batch) {
  const auto train = [&](auto& net, const torch::Tensor& rows, auto&& report) {
    torch::optim::SGD optimizer(net->parameters(), 0.05);
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      const auto loss = net->forward(rows).square().mean();
      loss.backward();
      optimizer.step();
      report(step, loss.template item<double>());
    }
  };
  torch::manual_seed(5);
  auto plain = make_plain();
  std::vector<double> expected;
  train(plain, batch, [&](int, double loss) { expected.push_back(loss); });

  std::vector<decltype(make_unit())> nets;
  for (int rank = 0; rank < world; ++rank) {
    torch::manual_seed(5);
    nets.push_back(make_unit());
  }
  on_ranks(world, [&](const DeviceMesh& mesh) {
    auto& net = nets[static_cast<std::size_t>(mesh.rank())];
    fully_shard(*net, mesh);
    train(net, testing::rows_of(batch, mesh.rank(), world),
          [&](int step, double loss) {
            expect_near_relative(mean_over_ranks(mesh, loss),
                                 expected[static_cast<std::size_t>(step)], 1e-5,
                                 "step " + std::to_string(step));
          });
  });
}

torch::nn::TransformerEncoderLayerOptions encoder_options() {
  return torch::nn::TransformerEncoderLayerOptions(12, 3)
      .dim_feedforward(20)
      .dropout(0.0);
}

TEST(ParityOfStockModules, TransformerEncoderLayers) {
  // [rows, sequence, features]: LibTorch's layer takes [sequence, batch,
  // features], so each row attends over the batch; rows stay independent.
  const auto batch =
      torch::sin(torch::arange(12 * 5 * 12, torch::kFloat)).view({12, 5, 12});
  struct TransposeImpl : torch::nn::Module {
    torch::Tensor forward(torch::Tensor x) { return x.transpose(0, 1); }
  };
  for (const int world : {2, 3}) {
    expect_same_losses(
        world,
        [] {
          return torch::nn::Sequential(
              TransposeImpl(),
              torch::nn::TransformerEncoderLayer(encoder_options()),
              torch::nn::TransformerEncoderLayer(encoder_options()));
        },
        [] {
          return torch::nn::Sequential(
              TransposeImpl(),
              Unit<torch::nn::TransformerEncoderLayer>(encoder_options()),
              Unit<torch::nn::TransformerEncoderLayer>(encoder_options()));
        },
        batch);
  }
}

TEST(ParityOfStockModules, ConvolutionsWithReluInPlace) {
  const auto batch = torch::cos(torch::arange(12 * 3 * 6 * 6, torch::kFloat))
                         .view({12, 3, 6, 6});
  const auto relu = [] {
    return torch::nn::ReLU(torch::nn::ReLUOptions().inplace(true));
  };
  for (const int world : {2, 4}) {
    expect_same_losses(
        world,
        [&] {
          return torch::nn::Sequential(torch::nn::Conv2d(3, 5, 3), relu(),
                                       torch::nn::Conv2d(5, 7, 3));
        },
        [&] {
          return torch::nn::Sequential(Unit<torch::nn::Conv2d>(3, 5, 3), relu(),
                                       Unit<torch::nn::Conv2d>(5, 7, 3));
        },
        batch);
  }
}

}  // namespace
}  // namespace accordion
