// SPDX-License-Identifier: BSD-3-Clause
// Scaled training against training without a scale.
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

#include "accordion/fsdp/controls.h"
#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/optim/clip_grad_norm.h"
#include "accordion/optim/grad_scaler.h"
#include "accordion/optim/parameters.h"
#include "tests/fsdp/models.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using testing::on_meshes;
using testing::on_ranks;
using testing::seeded;

using Net = Unit<testing::UnitNet>;

constexpr int kSteps = 6;
constexpr int kRows = 24;  // of a step; divides by 1 to 4 ranks and 2 parts
constexpr double kMaxNorm = 0.3;  // below the norms: every step is clipped

struct Curve {
  std::vector<double> losses;  // of all ranks
  std::vector<double> norms;
  std::vector<torch::Tensor> parameters;  // whole, after the last step
};

/// Takes one step from what backward left, and returns the norm.
using Update = std::function<double()>;
/// Loss to be run backward.
using Scale = std::function<torch::Tensor(const torch::Tensor&)>;

/// In fp32, for the loss.
torch::Tensor output(Net& net, const torch::Tensor& x) {
  return net(x).to(torch::kFloat);
}

Curve train(Net& net, const DeviceMesh& mesh, const Scale& scale,
            const Update& update) {
  Curve curve;
  for (int step = 0; step < kSteps; ++step) {
    net->zero_grad();
    double loss = 0;
    for (const int part : {0, 1}) {
      set_is_last_backward(*net, part == 1);
      const auto mine = [&](const torch::Tensor& whole) {
        return testing::rows_of(whole.narrow(0, part * kRows / 2, kRows / 2),
                                mesh.rank(), mesh.world_size());
      };
      const auto part_loss =
          testing::loss_of(output(net, mine(testing::batch_of(step, kRows))),
                           mine(testing::target_of(step, kRows))) /
          2;
      scale(part_loss).backward();
      loss += part_loss.item<double>();
    }
    curve.losses.push_back(testing::mean_over_ranks(mesh, loss));
    curve.norms.push_back(update());
  }
  for (const LocalParameter& parameter : local_parameters(*net)) {
    curve.parameters.push_back(full_parameter(*net, parameter.name));
  }
  return curve;
}

torch::Tensor unscaled(const torch::Tensor& loss) {
  return loss;
}

AdamWOptions adamw_options() {
  return {.lr = 0.02, .weight_decay = 0.1};
}

Curve plain(const DeviceMesh& mesh, const FsdpOptions& options) {
  auto net = seeded<Net>();
  fully_shard(net, mesh, options);
  AdamW optimizer(net, adamw_options());
  return train(net, mesh, unscaled, [&] {
    const double norm = reduced_grad_norm(net);
    optimizer.step(clip_coefficient(norm, kMaxNorm));
    return norm;
  });
}

Curve scaled(const DeviceMesh& mesh, const FsdpOptions& options,
             const GradScalerOptions& scaling) {
  auto net = seeded<Net>();
  fully_shard(net, mesh, options);
  AdamW optimizer(net, adamw_options());
  GradScaler scaler(net, scaling);
  return train(
      net, mesh, [&](const torch::Tensor& loss) { return scaler.scale(loss); },
      [&] {
        const double norm = scaler.reduced_grad_norm();
        EXPECT_TRUE(scaler.step(optimizer, clip_coefficient(norm, kMaxNorm)));
        scaler.update();
        return norm;
      });
}

/// An optimizer of LibTorch.
torch::optim::AdamW torch_adamw(Net& net) {
  return torch::optim::AdamW(
      parameters(net), torch::optim::AdamWOptions(0.02).weight_decay(0.1));
}

Curve plain_torch(const DeviceMesh& mesh) {
  auto net = seeded<Net>();
  fully_shard(net, mesh);
  auto optimizer = torch_adamw(net);
  return train(net, mesh, unscaled, [&] {
    const double norm = clip_grad_norm_(net, kMaxNorm);
    optimizer.step();
    return norm;
  });
}

Curve scaled_torch(const DeviceMesh& mesh) {
  auto net = seeded<Net>();
  fully_shard(net, mesh);
  auto optimizer = torch_adamw(net);
  GradScaler scaler(net, {.init_scale = 4096});
  return train(
      net, mesh, [&](const torch::Tensor& loss) { return scaler.scale(loss); },
      [&] {
        scaler.unscale_();
        const double norm = clip_grad_norm_(net, kMaxNorm);
        EXPECT_TRUE(scaler.step(optimizer));
        scaler.update();
        return norm;
      });
}

void expect_same_bits(const Curve& got, const Curve& expected,
                      const std::string& what) {
  EXPECT_EQ(got.losses, expected.losses) << what;
  EXPECT_EQ(got.norms, expected.norms) << what;
  for (std::size_t i = 0; i < expected.parameters.size(); ++i) {
    EXPECT_TRUE(torch::equal(got.parameters[i], expected.parameters[i]))
        << what << ", parameter " << i;
  }
}

struct Layout {
  std::string name;
  std::vector<MeshAxis> axes;
  FsdpOptions options = {};
};

std::vector<Layout> layouts() {
  std::vector<Layout> result;
  for (const int world : {1, 2, 3, 4}) {
    for (const auto strategy : {Strategy::FullShard, Strategy::ShardGradOp,
                                Strategy::ShardOptimizer, Strategy::NoShard}) {
      result.push_back({"strategy " +
                            std::to_string(static_cast<int>(strategy)) +
                            " on " + std::to_string(world) + " ranks",
                        {{"shard", world}},
                        {.strategy = strategy}});
    }
  }
  result.push_back({"hpZ on 4 ranks", {{"shard", 4}}, {.reshard_to_ranks = 2}});
  for (const auto accumulation :
       {Accumulation::Sharded, Accumulation::DeferredAllReduce,
        Accumulation::Unsharded}) {
    result.push_back({"hybrid on 2 x 2 ranks",
                      {{"replicate", 2}, {"shard", 2}},
                      {.accumulation = accumulation}});
  }
  return result;
}

void on_layout(const Layout& layout,
               const std::function<void(const DeviceMesh&)>& body) {
  on_meshes(make_local_meshes(layout.axes, std::chrono::seconds(30)), body);
}

// Scales are powers of two, so that each product and sum of backward, the norm
// and the update are those of the plain run times a power of two.
TEST(GradScaler, LeavesTheBitsOfFp32TrainingAloneInEveryStrategy) {
  for (const Layout& layout : layouts()) {
    on_layout(layout, [&](const DeviceMesh& mesh) {
      const Curve expected = plain(mesh, layout.options);
      // Grows on the way: 2^16, 2^17, 2^18.
      expect_same_bits(scaled(mesh, layout.options, {.growth_interval = 2}),
                       expected, layout.name);
    });
  }
}

TEST(GradScaler, LeavesTheBitsOfTorchOptimsAloneToo) {
  for (const int world : {1, 3}) {
    on_ranks(world, [](const DeviceMesh& mesh) {
      expect_same_bits(scaled_torch(mesh), plain_torch(mesh),
                       "torch::optim::AdamW");
    });
  }
}

// A rounding to fp16 is off by 2^-11 at most. A loss is a mean of squares,
// whose errors of both signs average out: two roundings. A gradient passes
// through all of forward and backward, the roundings of some eight products.
constexpr double kRounding = 1.0 / 2048;

TEST(GradScaler, Fp16FollowsFp32InEveryStrategy) {
  for (const Layout& layout : layouts()) {
    on_layout(layout, [&](const DeviceMesh& mesh) {
      const Curve expected = plain(mesh, layout.options);
      for (const auto reduce : {torch::kFloat, torch::kHalf}) {
        FsdpOptions options = layout.options;
        options.precision = {.param_dtype = torch::kHalf,
                             .reduce_dtype = reduce};
        const Curve got = scaled(mesh, options, {.init_scale = 1024});
        for (int step = 0; step < kSteps; ++step) {
          const auto i = static_cast<std::size_t>(step);
          EXPECT_NEAR(got.losses[i] / expected.losses[i], 1, 2 * kRounding)
              << layout.name << ", step " << step;
          EXPECT_NEAR(got.norms[i] / expected.norms[i], 1, 8 * kRounding)
              << layout.name << ", step " << step;
        }
      }
    });
  }
}

// What the scale is for: gradients below the smallest half, 2^-24.
TEST(GradScaler, KeepsGradientsThatFp16DoesNot) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    auto net = seeded<Net>();
    fully_shard(net, mesh, {.precision = {.param_dtype = torch::kHalf}});
    const auto loss = [&] {
      net->zero_grad();
      return output(net, testing::batch_of(0, 4)).square().mean() * 0x1p-30;
    };
    loss().backward();
    EXPECT_EQ(reduced_grad_norm(net), 0);
    GradScaler scaler(net, {.init_scale = 0x1p30});
    scaler.scale(loss()).backward();
    EXPECT_GT(scaler.reduced_grad_norm(), 0x1p-31);
  });
}

// Found by scaling down: overflow at first, then steps like fp32's.
TEST(GradScaler, FindsAScaleThatFitsByItself) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    auto net = seeded<Net>();
    fully_shard(net, mesh, {.precision = {.param_dtype = torch::kHalf}});
    AdamW optimizer(net, {});
    GradScaler scaler(net, {.init_scale = 0x1p24});
    int taken = 0;
    for (int step = 0; step < 20; ++step) {
      net->zero_grad();
      const auto y = output(net, testing::batch_of(step, 4));
      scaler.scale(y.square().mean()).backward();
      taken += scaler.step(optimizer) ? 1 : 0;
      scaler.update();
    }
    EXPECT_GE(scaler.state().skipped_steps, 5);
    EXPECT_EQ(taken + scaler.state().skipped_steps, 20);
    EXPECT_EQ(scaler.state().skips_in_row, 0);
  });
}

}  // namespace
}  // namespace accordion
