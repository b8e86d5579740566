// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/optim/adamw.h"

#include <torch/optim/adamw.h>

#include "accordion/fsdp/fully_shard.h"
#include "accordion/optim/clip_grad_norm.h"
#include "tests/fsdp/models.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using testing::on_ranks;
using testing::seeded;

void backward(auto& net, int step) {
  net(testing::batch_of(step, 4)).square().mean().backward();
}

std::vector<torch::Tensor> vectors_and_matrices(torch::nn::Module& net,
                                                std::int64_t dim) {
  std::vector<torch::Tensor> result;
  for (const auto& parameter : net.parameters()) {
    if (parameter.dim() == dim) {
      result.push_back(parameter);
    }
  }
  return result;
}

TEST(AdamW, ParameterGroupsDecayAsTorchOptimsDo) {
  auto plain = seeded<testing::PlainNet>();
  const auto options = [](double decay) {
    return std::make_unique<torch::optim::AdamWOptions>(
        torch::optim::AdamWOptions(0.05).weight_decay(decay));
  };
  torch::optim::AdamW reference(std::vector<torch::optim::OptimizerParamGroup>{
      {vectors_and_matrices(*plain, 2), options(0.3)},
      {vectors_and_matrices(*plain, 1), options(0.0)}});
  for (int step = 0; step < 5; ++step) {
    reference.zero_grad();
    backward(plain, step);
    reference.step();
  }
  for (const int world : {1, 2, 3}) {
    std::vector<Unit<testing::UnitNet>> nets;
    for (int rank = 0; rank < world; ++rank) {
      nets.push_back(seeded<Unit<testing::UnitNet>>());
    }
    on_ranks(world, [&](const DeviceMesh& mesh) {
      auto& net = nets[static_cast<std::size_t>(mesh.rank())];
      fully_shard(net, mesh);
      AdamW optimizer(net, {.lr = 0.05,
                            .weight_decay = 0.3,
                            .decays = [](const LocalParameter& parameter) {
                              return parameter.global_shape.size() > 1;
                            }});
      for (int step = 0; step < 5; ++step) {
        optimizer.zero_grad();
        backward(net, step);
        optimizer.step();
      }
      for (const auto& parameter : plain->named_parameters()) {
        EXPECT_TRUE(torch::allclose(full_parameter(*net, parameter.key()),
                                    parameter.value(), 1e-5, 1e-6))
            << parameter.key() << ", " << world << " ranks";
      }
      EXPECT_EQ(optimizer.state_bytes(), 2 * sharded_bytes(*net).parameters);
    });
  }
}

TEST(AdamW, ReadsGradientsTimesTheScale) {
  for (const auto dtype : {torch::kFloat, torch::kDouble}) {
    on_ranks(2, [&](const DeviceMesh& mesh) {
      auto scaled = seeded<Unit<testing::UnitNet>>();
      auto clipped = seeded<Unit<testing::UnitNet>>();
      for (auto* net : {&scaled, &clipped}) {
        (*net)->to(dtype);
        fully_shard(*net, mesh);
      }
      AdamW first(scaled, {.lr = 0.05});
      AdamW second(clipped, {.lr = 0.05});
      for (int step = 0; step < 3; ++step) {
        for (auto* net : {&scaled, &clipped}) {
          (*net)->zero_grad();
          (*net)(testing::batch_of(step, 4).to(dtype))
              .square()
              .sum()
              .backward();
        }
        first.step(clip_coefficient(reduced_grad_norm(scaled), 0.1));
        clip_grad_norm_(clipped, 0.1);
        second.step();
      }
      EXPECT_TRUE(torch::allclose(full_parameter(*scaled, "head.weight"),
                                  full_parameter(*clipped, "head.weight"), 1e-5,
                                  1e-7));
    });
  }
}

TEST(AdamW, SkipsParametersWithoutAGradient) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    auto net = seeded<Unit<testing::UnitNet>>();
    fully_shard(net, mesh);
    AdamW optimizer(net, {.lr = 0.05, .weight_decay = 0.5});
    const auto bias = full_parameter(*net, "head.bias");
    const auto weight = full_parameter(*net, "head.weight");
    backward(net, 0);
    net->head->bias.mutable_grad().reset();
    optimizer.step();
    EXPECT_TRUE(torch::equal(full_parameter(*net, "head.bias"), bias));
    EXPECT_FALSE(torch::equal(full_parameter(*net, "head.weight"), weight));
  });
}

TEST(AdamW, SkipsFrozenParameters) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    auto net = seeded<Unit<testing::UnitNet>>();
    net->head->weight.set_requires_grad(false);
    fully_shard(net, mesh);
    AdamW optimizer(net, {.lr = 0.05, .weight_decay = 0.5});
    const auto weight = full_parameter(*net, "head.weight");
    backward(net, 0);
    optimizer.step();
    EXPECT_TRUE(torch::equal(full_parameter(*net, "head.weight"), weight));
  });
}

TEST(AdamW, RejectsOptionsOutOfRange) {
  on_ranks(1, [](const DeviceMesh& mesh) {
    auto net = seeded<Unit<testing::UnitNet>>();
    fully_shard(net, mesh);
    const auto message = [&](AdamWOptions options) {
      return testing::message_of<c10::ValueError>(
          [&] { AdamW optimizer(net, options); });
    };
    EXPECT_NE(message({.lr = -1}).find("lr is -1"), std::string::npos);
    EXPECT_NE(message({.beta2 = 1}).find("betas are"), std::string::npos);
    EXPECT_NE(message({.weight_decay = -0.1}).find("weight_decay is -0.1"),
              std::string::npos);
  });
}

}  // namespace
}  // namespace accordion
