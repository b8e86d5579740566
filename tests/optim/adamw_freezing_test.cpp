// SPDX-License-Identifier: BSD-3-Clause
//
// requires_grad changed between steps: AdamW against torch::optim::AdamW on a
// single process with the whole batch.
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <torch/optim/adamw.h>

#include "accordion/fsdp/fully_shard.h"
#include "accordion/optim/adamw.h"
#include "tests/fsdp/models.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using testing::on_ranks;
using testing::seeded;

constexpr int kSteps = 8;
constexpr int kRows = 4;

/// The parameters, by prefix of their names, that are frozen from a step on.
using Frozen = std::map<int, std::vector<std::string>>;

void freeze(torch::nn::Module& net, const std::vector<std::string>& prefixes) {
  for (auto& item : net.named_parameters()) {
    const bool frozen = std::any_of(prefixes.begin(), prefixes.end(),
                                    [&](const std::string& prefix) {
                                      return item.key().rfind(prefix, 0) == 0;
                                    });
    item.value().set_requires_grad(!frozen);
  }
}

/// Trains on this rank's rows; `frozen` at 0 holds when the optimizer is made.
void train(auto& net, auto& optimizer, const Frozen& frozen, int rank,
           int world) {
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    if (step > 0 && frozen.contains(step)) {
      freeze(*net, frozen.at(step));
    }
    const auto rows = [&](const torch::Tensor& batch) {
      return testing::rows_of(batch, rank, world);
    };
    testing::loss_of(net(rows(testing::batch_of(step, kRows))),
                     rows(testing::target_of(step, kRows)))
        .backward();
    optimizer.step();
  }
}

testing::PlainNet reference(const Frozen& frozen) {
  auto net = seeded<testing::PlainNet>();
  freeze(*net, frozen.at(0));
  torch::optim::AdamW optimizer(
      net->parameters(), torch::optim::AdamWOptions(0.05).weight_decay(0.3));
  train(net, optimizer, frozen, 0, 1);
  return net;
}

void expect_as_torch_optim(const Frozen& frozen) {
  const testing::PlainNet expected = reference(frozen);
  for (const auto strategy : {Strategy::FullShard, Strategy::NoShard}) {
    on_ranks(2, [&](const DeviceMesh& mesh) {
      auto net = seeded<Unit<testing::UnitNet>>();
      freeze(*net, frozen.at(0));
      fully_shard(net, mesh, {.strategy = strategy});
      AdamW optimizer(net, {.lr = 0.05, .weight_decay = 0.3});
      train(net, optimizer, frozen, mesh.rank(), 2);
      for (const auto& parameter : expected->named_parameters()) {
        EXPECT_TRUE(torch::allclose(full_parameter(*net, parameter.key()),
                                    parameter.value(), 1e-5, 1e-6))
            << parameter.key() << ", strategy " << static_cast<int>(strategy);
      }
    });
  }
}

TEST(AdamWFreezing, ABlockThatIsUnfrozenStartsAfresh) {
  expect_as_torch_optim({{0, {"block1"}}, {3, {}}});
}

TEST(AdamWFreezing, ABlockThatIsFrozenForAWhileKeepsItsMoments) {
  expect_as_torch_optim({{0, {}}, {2, {"block0"}}, {5, {}}});
}

// Sections are made of what is trainable at first: here a part of one changes.
TEST(AdamWFreezing, PartOfASectionIsFrozenAndUnfrozen) {
  expect_as_torch_optim({{0, {}},
                         {2, {"block1.up.weight", "block2.down"}},
                         {5, {"block1.down"}}});
}

TEST(AdamWFreezing, PartOfAFrozenSectionIsUnfrozen) {
  const std::vector<std::string> all_but_biases = {
      "block0.up.weight", "block1.up", "block1.down.weight", "block2"};
  expect_as_torch_optim({{0, all_but_biases},
                         {3, {"block1.up.weight", "block2"}},
                         {6, {"block1.down"}}});
}

TEST(AdamWFreezing, OnlyTrainedSectionsHaveMoments) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    auto net = seeded<Unit<testing::UnitNet>>();
    freeze(*net, {""});
    fully_shard(net, mesh);
    AdamW optimizer(net, {.lr = 0.05});
    EXPECT_EQ(optimizer.state_bytes(), 0);
    freeze(*net, {"block"});
    net(testing::batch_of(0, kRows)).square().mean().backward();
    optimizer.step();
    EXPECT_EQ(optimizer.state_bytes(), 2 * sharded_bytes(*net).gradients);
    EXPECT_GT(optimizer.state_bytes(), 0);
  });
}

}  // namespace
}  // namespace accordion
