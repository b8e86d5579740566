// SPDX-License-Identifier: BSD-3-Clause
// Every strategy, accumulated or not, follows a single process on a model with
// tied, frozen, unused and odd-sized parameters.
#include <cmath>
#include <limits>

#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>

#include "accordion/fsdp/controls.h"
#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/optim/adamw.h"
#include "accordion/optim/clip_grad_norm.h"
#include "tests/fsdp/odd_net.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using testing::class_loss;
using testing::classes_of;
using testing::mean_over_ranks;
using testing::rows_of;
using testing::seeded;
using testing::tokens_of;

constexpr int kSteps = 5;
constexpr int kRows = 48;  // divides by 1, 2, 3, 4 ranks and 4 microbatches
constexpr double kClip = 0.2;

struct Point {
  double loss = 0;
  double norm = 0;
};

/// The curve of a single process with the whole batch. Without decay: there, a
/// parameter that is not used is not updated; here its gradient is zero.
std::vector<Point> single_process() {
  auto net = seeded<testing::PlainOddNet>();
  std::vector<torch::Tensor> parameters;
  for (const auto& item : net->named_parameters()) {
    if (item.key() != "head_weight") {  // the embedding's, again
      parameters.push_back(item.value());
    }
  }
  torch::optim::AdamW optimizer(
      parameters, torch::optim::AdamWOptions(1e-2).weight_decay(0));
  std::vector<Point> curve;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const auto loss =
        class_loss(net(tokens_of(step, kRows)), classes_of(step, kRows));
    loss.backward();
    const double norm = torch::nn::utils::clip_grad_norm_(parameters, kClip);
    optimizer.step();
    curve.push_back({loss.item<double>(), norm});
  }
  return curve;
}

struct Setting {
  std::string name;
  std::vector<MeshAxis> axes;
  FsdpOptions options;
  int microbatches = 1;
};

Point train_step(const DeviceMesh& mesh, Unit<testing::UnitOddNet>& net,
                 AdamW& optimizer, int step, int microbatches) {
  optimizer.zero_grad();
  double loss_sum = 0;
  for (int k = 0; k < microbatches; ++k) {
    const auto mine = [&](const torch::Tensor& batch) {
      return rows_of(rows_of(batch, k, microbatches), mesh.rank(),
                     mesh.world_size());
    };
    set_is_last_backward(*net, k == microbatches - 1);
    const auto loss = class_loss(net(mine(tokens_of(step, kRows))),
                                 mine(classes_of(step, kRows))) /
                      microbatches;
    loss.backward();
    loss_sum += loss.item<double>();
  }
  const double norm = clip_grad_norm_(net, kClip);
  optimizer.step();
  return {mean_over_ranks(mesh, loss_sum), norm};
}

class Strategies : public ::testing::TestWithParam<Setting> {};

TEST_P(Strategies, FollowASingleProcess) {
  const Setting& setting = GetParam();
  const bool bf16 = setting.options.precision.param_dtype.has_value();
  // Relative: sums over the batch are taken in another order; bf16 rounds
  // products to 8 bits.
  const double loss_tolerance = bf16 ? 4e-3 : 1e-5;
  const double norm_tolerance = bf16 ? 5e-2 : 1e-4;
  const std::vector<Point> expected = single_process();
  auto meshes = make_local_meshes(setting.axes, std::chrono::seconds(30));
  std::vector<Unit<testing::UnitOddNet>> nets;
  for (std::size_t rank = 0; rank < meshes.size(); ++rank) {
    nets.push_back(seeded<Unit<testing::UnitOddNet>>());
  }
  testing::on_meshes(std::move(meshes), [&](const DeviceMesh& mesh) {
    auto& net = nets[static_cast<std::size_t>(mesh.rank())];
    fully_shard(net, mesh, setting.options);
    AdamW optimizer(net, {.lr = 1e-2, .weight_decay = 0});
    for (int step = 0; step < kSteps; ++step) {
      const Point got =
          train_step(mesh, net, optimizer, step, setting.microbatches);
      const Point& want = expected[static_cast<std::size_t>(step)];
      EXPECT_NEAR(got.loss, want.loss, loss_tolerance * want.loss)
          << "loss, step " << step;
      EXPECT_NEAR(got.norm, want.norm, norm_tolerance * want.norm)
          << "norm, step " << step;
    }
  });
}

std::vector<Setting> with_precisions_and_microbatches(Setting setting) {
  std::vector<Setting> result;
  for (const bool bf16 : {false, true}) {
    for (const int microbatches : {1, 4}) {
      Setting variant = setting;
      variant.microbatches = microbatches;
      if (bf16) {
        variant.options.precision = {.param_dtype = torch::kBFloat16,
                                     .reduce_dtype = torch::kFloat};
      }
      variant.name += std::string(bf16 ? "_bf16" : "_fp32") + "_k" +
                      std::to_string(microbatches);
      result.push_back(variant);
    }
  }
  return result;
}

std::vector<Setting> settings() {
  std::vector<Setting> result;
  const auto add = [&](const std::string& name, std::vector<MeshAxis> axes,
                       const FsdpOptions& options) {
    for (Setting& setting :
         with_precisions_and_microbatches({name, std::move(axes), options})) {
      result.push_back(std::move(setting));
    }
  };
  const std::vector<std::pair<std::string, FsdpOptions>> strategies = {
      {"full_shard", {}},
      {"shard_grad_op", {.strategy = Strategy::ShardGradOp}},
      {"shard_grad_op_keep",
       {.strategy = Strategy::ShardGradOp,
        .keep_parameters_across_microbatches = true}},
      {"shard_optimizer", {.strategy = Strategy::ShardOptimizer}},
      {"no_shard", {.strategy = Strategy::NoShard}},
      {"unsharded_accumulation", {.accumulation = Accumulation::Unsharded}},
      {"small_replicated", {.min_shard_numel = 50}}};
  for (int world = 1; world <= 4; ++world) {
    for (const auto& [name, options] : strategies) {
      add(name + "_w" + std::to_string(world), {{"shard", world}}, options);
    }
  }
  for (const auto& [replicas, shards] :
       std::vector<std::pair<int, int>>{{2, 1}, {1, 2}, {2, 2}, {3, 1}}) {
    const std::vector<MeshAxis> axes{{"replicate", replicas},
                                     {"shard", shards}};
    const std::string size =
        std::to_string(replicas) + "x" + std::to_string(shards);
    add("hybrid_" + size, axes, {});
    add("hybrid_shard_optimizer_" + size, axes,
        {.strategy = Strategy::ShardOptimizer});
    if (replicas > 1) {
      add("hybrid_deferred_" + size, axes,
          {.accumulation = Accumulation::DeferredAllReduce});
    }
  }
  add("hpz_4_to_2", {{"shard", 4}}, {.reshard_to_ranks = 2});
  add("hpz_4_to_1", {{"shard", 4}}, {.reshard_to_ranks = 1});
  return result;
}

INSTANTIATE_TEST_SUITE_P(All, Strategies, ::testing::ValuesIn(settings()),
                         [](const ::testing::TestParamInfo<Setting>& info) {
                           return info.param.name;
                         });

TEST(Strategies, NormsOfEveryOrderOverHybridMeshes) {
  auto plain = seeded<testing::PlainOddNet>();
  class_loss(plain(tokens_of(0, kRows)), classes_of(0, kRows)).backward();
  std::vector<torch::Tensor> parameters;
  for (const auto& item : plain->named_parameters()) {
    if (item.key() != "head_weight" && item.value().grad().defined() &&
        item.value().numel() > 0) {
      parameters.push_back(item.value());
    }
  }
  std::vector<Unit<testing::UnitOddNet>> nets;
  for (int rank = 0; rank < 4; ++rank) {
    nets.push_back(seeded<Unit<testing::UnitOddNet>>());
  }
  testing::on_meshes(
      make_local_meshes({{"replicate", 2}, {"shard", 2}},
                        std::chrono::seconds(30)),
      [&](const DeviceMesh& mesh) {
        auto& net = nets[static_cast<std::size_t>(mesh.rank())];
        fully_shard(net, mesh, {.min_shard_numel = 50});
        class_loss(net(rows_of(tokens_of(0, kRows), mesh.rank(), 4)),
                   rows_of(classes_of(0, kRows), mesh.rank(), 4))
            .backward();
        for (const double p :
             {1.0, 2.0, std::numeric_limits<double>::infinity()}) {
          double expected = 0;
          for (const auto& parameter : parameters) {
            const double norm =
                parameter.grad().flatten().norm(p).item<double>();
            expected = std::isinf(p) ? std::max(expected, norm)
                                     : expected + std::pow(norm, p);
          }
          expected = std::isinf(p) ? expected : std::pow(expected, 1 / p);
          EXPECT_NEAR(clip_grad_norm_(net, 1e9, p), expected, 1e-5 * expected)
              << "p = " << p;
        }
      });
}

}  // namespace
}  // namespace accordion
