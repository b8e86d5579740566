// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/optim/grad_scaler.h"

#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/optim/clip_grad_norm.h"
#include "accordion/optim/parameters.h"
#include "tests/fsdp/models.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;
using testing::on_meshes;
using testing::on_ranks;
using testing::seeded;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
using Net = Unit<testing::UnitNet>;

/// A backward whose gradients are finite, or not in `unit` of `rank`.
struct Fault {
  int rank = 0;
  float value = kInfinity;
};

void backward(Net& net, const GradScaler& scaler,
              std::optional<Fault> fault = std::nullopt, int rank = 0) {
  net->zero_grad();
  auto x = testing::batch_of(0, 4);
  if (fault && fault->rank == rank) {
    x[0][0] = fault->value;
  }
  scaler.scale(net(x).square().mean()).backward();
}

/// Steps of one rank that are taken (+) or skipped (-), and the scales before.
std::vector<double> scales_of(GradScalerOptions options,
                              const std::string& steps) {
  std::vector<double> scales;
  on_ranks(1, [&](const DeviceMesh& mesh) {
    auto net = seeded<Net>();
    fully_shard(net, mesh);
    AdamW optimizer(net, {});
    GradScaler scaler(net, options);
    for (const char step : steps) {
      scales.push_back(scaler.state().scale);
      backward(net, scaler,
               step == '-' ? std::optional(Fault{}) : std::nullopt);
      EXPECT_EQ(scaler.step(optimizer), step == '+');
      scaler.update();
    }
    scales.push_back(scaler.state().scale);
  });
  return scales;
}

TEST(GradScaler, HalvesWhenAStepIsSkippedAndGrowsAfterAnInterval) {
  const GradScalerOptions options{.init_scale = 64, .growth_interval = 2};
  EXPECT_EQ(
      scales_of(options, "++++-+-+++"),
      (std::vector<double>{64, 64, 128, 128, 256, 128, 128, 64, 64, 128, 128}));
  EXPECT_EQ(scales_of({.init_scale = 10,
                       .growth_factor = 3,
                       .backoff_factor = 0.25,
                       .growth_interval = 1},
                      "+-"),
            (std::vector<double>{10, 30, 7.5}));
}

TEST(GradScaler, ScaleStaysWithinWhatFp32Divides) {
  const auto scales = scales_of(
      {.init_scale = 0x1p100, .growth_factor = 0x1p30, .growth_interval = 1},
      "+");
  EXPECT_EQ(scales.back(), 0x1p126);
}

TEST(GradScaler, CountsSkipsInARowAndInAll) {
  on_ranks(1, [](const DeviceMesh& mesh) {
    auto net = seeded<Net>();
    fully_shard(net, mesh);
    AdamW optimizer(net, {});
    GradScaler scaler(net);
    for (const bool skipped : {true, true, false, true}) {
      backward(net, scaler, skipped ? std::optional(Fault{}) : std::nullopt);
      scaler.step(optimizer);
      EXPECT_EQ(scaler.found_nonfinite(), skipped);
      scaler.update();
    }
    EXPECT_EQ(scaler.state(), (GradScalerState{.scale = 8192,
                                               .finite_steps = 0,
                                               .skips_in_row = 1,
                                               .skipped_steps = 3}));
  });
}

using StepOf = std::function<bool(Net&, GradScaler&)>;

/// Checks that a fault on one rank leaves every rank's piece as it is.
void expect_all_skip(const std::vector<MeshAxis>& axes, Strategy strategy,
                     float value,
                     const std::function<StepOf(Net&)>& make_step) {
  int world = 1;
  for (const MeshAxis& axis : axes) {
    world *= axis.size;
  }
  for (int faulty = 0; faulty < world; ++faulty) {
    on_meshes(make_local_meshes(axes, std::chrono::seconds(30)),
              [&](const DeviceMesh& mesh) {
                auto net = seeded<Net>();
                fully_shard(net, mesh, {.strategy = strategy});
                GradScaler scaler(net, {.init_scale = 1024});
                const StepOf step = make_step(net);
                backward(net, scaler);
                EXPECT_TRUE(step(net, scaler));
                scaler.update();
                std::vector<torch::Tensor> before;
                for (const FlatShard& shard : flat_shards(*net)) {
                  before.push_back(shard.parameters.clone());
                }
                backward(net, scaler, Fault{faulty, value}, mesh.rank());
                EXPECT_FALSE(step(net, scaler)) << "rank " << mesh.rank();
                scaler.update();
                EXPECT_EQ(scaler.state().scale, 512);
                const auto after = flat_shards(*net);
                for (std::size_t i = 0; i < after.size(); ++i) {
                  EXPECT_TRUE(torch::equal(after[i].parameters, before[i]))
                      << after[i].unit << ", rank " << mesh.rank();
                }
              });
  }
}

StepOf with_adamw(Net& net) {
  return [optimizer = std::make_shared<AdamW>(*net, AdamWOptions{})](
             Net&, GradScaler& scaler) { return scaler.step(*optimizer); };
}

StepOf with_sgd(Net& net) {
  return
      [optimizer = std::make_shared<torch::optim::SGD>(parameters(net), 0.1)](
          Net&, GradScaler& scaler) { return scaler.step(*optimizer); };
}

TEST(GradScaler, FaultOfOneRankSkipsTheStepOfAll) {
  for (const auto strategy : {Strategy::FullShard, Strategy::ShardGradOp,
                              Strategy::ShardOptimizer, Strategy::NoShard}) {
    for (const auto& make_step : {with_adamw, with_sgd}) {
      expect_all_skip({{"shard", 3}}, strategy, kInfinity, make_step);
      expect_all_skip({{"shard", 2}}, strategy, std::nanf(""), make_step);
    }
  }
  for (const auto& make_step : {with_adamw, with_sgd}) {
    expect_all_skip({{"replicate", 2}, {"shard", 2}}, Strategy::FullShard,
                    kInfinity, make_step);
  }
}

/// Three elements for four ranks.
struct TinyImpl : torch::nn::Module {
  TinyImpl() { weight = register_parameter("weight", torch::ones({3})); }
  torch::Tensor forward(const torch::Tensor& x) { return x * weight; }
  torch::Tensor weight;
};
TORCH_MODULE(Tiny);

// Pieces begin on 64 bytes: rank 0 owns all three elements.
TEST(GradScaler, RanksThatOwnNothingSkipToo) {
  on_ranks(4, [](const DeviceMesh& mesh) {
    Unit<Tiny> net;
    fully_shard(net, mesh);
    EXPECT_EQ(net->weight.numel() > 0, mesh.rank() == 0);
    torch::optim::SGD sgd(net->parameters(), 0.5);
    AdamW adamw(net, {});
    GradScaler scaler(net);
    const auto backward = [&](float mine) {
      net->zero_grad();
      scaler.scale(net(torch::full({3}, mine)).sum()).backward();
    };
    backward(mesh.rank() == 3 ? kInfinity : 1.0F);
    EXPECT_FALSE(scaler.step(sgd));
    scaler.update();
    backward(mesh.rank() == 2 ? kInfinity : 1.0F);
    EXPECT_FALSE(scaler.step(adamw));
    scaler.update();
    EXPECT_EQ(scaler.state().skips_in_row, 2);
    EXPECT_TRUE(torch::equal(full_parameter(*net, "weight"), torch::ones({3})));
    backward(1.0F);
    EXPECT_TRUE(scaler.step(sgd));
    EXPECT_TRUE(
        torch::equal(full_parameter(*net, "weight"), torch::full({3}, 0.5F)));
  });
}

TEST(GradScaler, UnscalesParametersThatAreIgnoredToo) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    auto net = seeded<Net>();
    fully_shard(net, mesh, {.placement = [](const ParameterInfo& parameter) {
                  return parameter.name == "head.bias"
                             ? ParameterPlacement::Ignore
                             : ParameterPlacement::Shard;
                }});
    GradScaler scaler(net, {.init_scale = 256});
    net(testing::batch_of(0, 4)).square().mean().backward();
    const auto plain = net->head->bias.grad().clone();
    backward(net, scaler);
    scaler.unscale_();
    EXPECT_TRUE(torch::equal(net->head->bias.grad(), plain));
    scaler.update();
    backward(net, scaler);
    if (mesh.rank() == 1) {
      net->head->bias.mutable_grad().fill_(kInfinity);
    }
    scaler.unscale_();
    EXPECT_TRUE(scaler.found_nonfinite());
  });
}

TEST(GradScaler, StopsAfterManySkipsAndNamesTheUnit) {
  on_ranks(3, [](const DeviceMesh& mesh) {
    auto net = seeded<Net>();
    fully_shard(net, mesh);
    AdamW optimizer(net, {});
    GradScaler scaler(net, {.init_scale = 1024, .max_skips = 2});
    // As when block1's overflow on rank 2, and so those that follow from it.
    const auto spoil = [&] {
      backward(net, scaler);
      for (const FlatShard& shard : flat_shards(*net)) {
        if (mesh.rank() == 2 &&
            (shard.unit == "block0" || shard.unit == "block1")) {
          shard.gradients.fill_(kInfinity);
        }
      }
      scaler.unscale_();
    };
    for (int skip = 0; skip < 2; ++skip) {
      EXPECT_FALSE(scaler.at_limit());
      spoil();
      EXPECT_FALSE(scaler.step(optimizer));
      scaler.update();
    }
    EXPECT_TRUE(scaler.at_limit());
    spoil();
    EXPECT_THAT(
        message_of<c10::Error>([&] { (void)scaler.step(optimizer); }),
        AllOf(HasSubstr("at a loss scale of 256, and the 2 steps before were"),
              HasSubstr("first met such a gradient in unit 'block1'."),
              HasSubstr("compute in bf16 or fp32")));
  });
}

TEST(GradScaler, StopsWhereTheScaleWouldFallBelowItsMinimum) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    auto net = seeded<Net>();
    fully_shard(net, mesh);
    AdamW optimizer(net, {});
    GradScaler scaler(net, {.init_scale = 4, .min_scale = 2});
    const Fault fault{.rank = 1};
    backward(net, scaler, fault, mesh.rank());
    EXPECT_FALSE(scaler.step(optimizer));
    scaler.update();
    EXPECT_EQ(scaler.state().scale, 2);
    backward(net, scaler, fault, mesh.rank());
    EXPECT_THAT(message_of<c10::Error>([&] { (void)scaler.step(optimizer); }),
                AllOf(HasSubstr("loss scale of 2, and the 1 steps"),
                      HasSubstr("min_scale 2"), HasSubstr("in the root.")));
  });
}

TEST(GradScaler, GoesOnFromItsState) {
  on_ranks(1, [](const DeviceMesh& mesh) {
    auto net = seeded<Net>();
    fully_shard(net, mesh);
    AdamW optimizer(net, {});
    GradScaler first(net, {.growth_interval = 3});
    GradScaler second(net, {.growth_interval = 3});
    const auto take = [&](GradScaler& scaler, std::optional<Fault> fault) {
      backward(net, scaler, fault);
      scaler.step(optimizer);
      scaler.update();
    };
    take(first, Fault{});
    take(first, std::nullopt);
    take(first, std::nullopt);
    second.set_state(first.state());
    EXPECT_EQ(second.state(), first.state());
    take(second, std::nullopt);
    EXPECT_EQ(second.state().scale, 65536) << "halved, then doubled";
    EXPECT_THAT(
        message_of<c10::ValueError>([&] { second.set_state({.scale = 0}); }),
        HasSubstr("a state has scale 0"));
    EXPECT_THAT(message_of<c10::ValueError>(
                    [&] { second.set_state({.skips_in_row = -1}); }),
                HasSubstr("skips_in_row -1"));
  });
}

TEST(GradScaler, SaysWhatIsCalledOutOfOrder) {
  on_ranks(1, [](const DeviceMesh& mesh) {
    auto net = seeded<Net>();
    fully_shard(net, mesh);
    GradScaler scaler(net);
    const auto error = [](const std::function<void()>& call) {
      return message_of<c10::ValueError>(call);
    };
    EXPECT_THAT(error([&] { scaler.update(); }),
                HasSubstr("update() without a step()"));
    backward(net, scaler);
    scaler.unscale_();
    EXPECT_THAT(error([&] { scaler.unscale_(); }),
                HasSubstr("unscale_() was called already"));
    EXPECT_THAT(error([&] { (void)scaler.reduced_grad_norm(); }),
                HasSubstr("reduced_grad_norm() after unscale_()"));
  });
}

TEST(GradScaler, RejectsOptionsOutOfRangeAndModulesInFp16) {
  on_ranks(1, [](const DeviceMesh& mesh) {
    auto net = seeded<Net>();
    EXPECT_THROW(GradScaler{net}, c10::ValueError) << "not sharded";
    fully_shard(net, mesh);
    const auto error = [&](GradScalerOptions options) {
      return message_of<c10::ValueError>([&] { GradScaler(net, options); });
    };
    EXPECT_THAT(error({.init_scale = 0}), HasSubstr("init_scale is 0"));
    EXPECT_THAT(error({.growth_factor = 1}), HasSubstr("growth_factor is 1"));
    EXPECT_THAT(error({.backoff_factor = 1}), HasSubstr("backoff_factor is 1"));
    EXPECT_THAT(error({.growth_interval = 0}),
                HasSubstr("growth_interval is 0"));
    EXPECT_THAT(error({.init_scale = 2, .min_scale = 4}),
                HasSubstr("min_scale is 4"));
    EXPECT_THAT(error({.max_skips = -1}), HasSubstr("max_skips is -1"));
    auto half = seeded<Net>();
    half->to(torch::kHalf);
    fully_shard(half, mesh);
    EXPECT_THAT(message_of<c10::ValueError>([&] { GradScaler{half}; }),
                HasSubstr("are stored in fp16"));
  });
}

TEST(GradScaler, ScalesALossInFp16InFp32) {
  on_ranks(1, [](const DeviceMesh& mesh) {
    auto net = seeded<Net>();
    fully_shard(net, mesh);
    const GradScaler scaler(net, {.init_scale = 0x1p20});
    const auto scaled = scaler.scale(torch::ones({}, torch::kHalf));
    EXPECT_EQ(scaled.scalar_type(), torch::kFloat);
    EXPECT_EQ(scaled.item<double>(), 0x1p20);
  });
}

}  // namespace
}  // namespace accordion
