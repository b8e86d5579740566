// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/optim/clip_grad_norm.h"

#include <cmath>
#include <limits>

#include <torch/nn/utils/clip_grad.h>

#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "tests/fsdp/models.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using testing::kHidden;
using testing::on_meshes;
using testing::on_ranks;
using testing::seeded;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void backward(auto& net) {
  net(testing::batch_of(0, 4)).square().sum().backward();
}

TEST(ClipGradNorm, ReturnsAndAppliesTheGlobalNormForEachP) {
  for (const double p : {1.0, 2.0, 3.0, kInfinity}) {
    auto plain = seeded<testing::PlainNet>();
    backward(plain);
    const double expected =
        torch::nn::utils::clip_grad_norm_(plain->parameters(), 0.25, p);
    for (const int world : {1, 2, 3, 4}) {
      for (const auto strategy : {Strategy::FullShard, Strategy::NoShard}) {
        std::vector<Unit<testing::UnitNet>> nets;
        for (int rank = 0; rank < world; ++rank) {
          nets.push_back(seeded<Unit<testing::UnitNet>>());
        }
        on_ranks(world, [&](const DeviceMesh& mesh) {
          auto& net = nets[static_cast<std::size_t>(mesh.rank())];
          fully_shard(net, mesh, {.strategy = strategy});
          backward(net);
          EXPECT_NEAR(clip_grad_norm_(net, 0.25, p), expected, expected * 1e-6)
              << "p " << p << ", " << world << " ranks";
          EXPECT_TRUE(torch::allclose(full_gradient(*net, "block0.up.weight"),
                                      plain->blocks[0]->up->weight.grad(), 1e-5,
                                      1e-7));
        });
      }
    }
  }
}

TEST(ReducedGradNorm, IsTheNormOfWhatIsThere) {
  for (const int world : {1, 2, 3}) {
    for (const auto strategy : {Strategy::FullShard, Strategy::NoShard}) {
      std::vector<Unit<testing::UnitNet>> nets;
      for (int rank = 0; rank < world; ++rank) {
        nets.push_back(seeded<Unit<testing::UnitNet>>());
      }
      on_ranks(world, [&](const DeviceMesh& mesh) {
        auto& net = nets[static_cast<std::size_t>(mesh.rank())];
        // Small parameters are whole on every rank, and count once.
        fully_shard(net, mesh,
                    {.strategy = strategy, .min_shard_numel = kHidden});
        for (int microbatch = 0; microbatch < 2; ++microbatch) {
          backward(net);
          EXPECT_NEAR(reduced_grad_norm(net) / clip_grad_norm_(net, kInfinity),
                      1.0, 1e-6)
              << "microbatch " << microbatch << ", " << world << " ranks";
        }
        net->head->weight.mutable_grad().reset();
        EXPECT_NEAR(reduced_grad_norm(net) / clip_grad_norm_(net, kInfinity),
                    1.0, 1e-6)
            << "one parameter without a gradient";
        net->zero_grad();
        EXPECT_EQ(reduced_grad_norm(net), 0.0);
      });
    }
  }
}

TEST(ReducedGradNorm, OfAHybridMeshIsThatOfTheMean) {
  on_meshes(make_local_meshes({{"replicate", 2}, {"shard", 2}},
                              std::chrono::seconds(30)),
            [](const DeviceMesh& mesh) {
              auto net = seeded<Unit<testing::UnitNet>>();
              fully_shard(net, mesh);
              // Replicas differ, so that their mean is none of them.
              net(testing::batch_of(mesh.rank(), 4)).square().sum().backward();
              EXPECT_NEAR(
                  reduced_grad_norm(net) / clip_grad_norm_(net, kInfinity), 1.0,
                  1e-6);
            });
}

TEST(ClipCoefficient, IsWhatClippingMultipliesBy) {
  EXPECT_NEAR(clip_coefficient(4.0, 1.0), 0.25, 1e-6);
  EXPECT_EQ(clip_coefficient(0.5, 1.0), 1.0);
  EXPECT_EQ(clip_coefficient(kInfinity, 1.0), 0.0);
  EXPECT_EQ(clip_coefficient(2.0, kInfinity), 1.0);
  EXPECT_TRUE(std::isnan(clip_coefficient(std::nan(""), 1.0)));
  EXPECT_THROW((void)clip_coefficient(1.0, -1.0), c10::ValueError);
}

TEST(ClipGradNorm, LeavesSmallGradientsAlone) {
  on_ranks(1, [](const DeviceMesh& mesh) {
    auto net = seeded<Unit<testing::UnitNet>>();
    fully_shard(net, mesh);
    backward(net);
    const auto before = full_gradient(*net, "head.weight");
    clip_grad_norm_(net, 1e9);
    EXPECT_TRUE(torch::equal(full_gradient(*net, "head.weight"), before));
  });
}

TEST(ClipGradNorm, CountsOnlyParametersThatHaveAGradient) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    auto net = seeded<Unit<testing::UnitNet>>();
    fully_shard(net, mesh);
    backward(net);
    const double all = clip_grad_norm_(net, 1e9);
    net->head->weight.mutable_grad().reset();
    net->head->bias.mutable_grad().reset();
    EXPECT_LT(clip_grad_norm_(net, 1e9), all);
  });
}

TEST(ClipGradNorm, SeesANanOnAnotherRank) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    auto net = seeded<Unit<testing::UnitNet>>();
    fully_shard(net, mesh);
    backward(net);
    if (mesh.rank() == 1) {
      flat_shards(*net)[0].gradients[0].fill_(std::nan(""));
    }
    for (const double p : {2.0, kInfinity}) {
      EXPECT_TRUE(std::isnan(clip_grad_norm_(net, kInfinity, p)));
    }
    const auto message = testing::message_of<c10::ValueError>(
        [&] { clip_grad_norm_(net, 1.0, 2.0, true); });
    EXPECT_NE(message.find("the norm of the gradients is nan"),
              std::string::npos)
        << message;
  });
}

// Blocks are registered in their order, and the root's head behind them.
TEST(FirstNonfiniteUnit, IsTheFirstOfBackwardOnWhateverRankItIs) {
  on_ranks(3, [](const DeviceMesh& mesh) {
    auto net = seeded<Unit<testing::UnitNet>>();
    fully_shard(net, mesh);
    EXPECT_EQ(first_nonfinite_unit(net), std::nullopt);
    backward(net);
    EXPECT_EQ(first_nonfinite_unit(net), std::nullopt);
    const auto spoil = [&](int rank, const std::string& unit, double value) {
      for (const FlatShard& shard : flat_shards(*net)) {
        if (mesh.rank() == rank && shard.unit == unit) {
          shard.gradients[0].fill_(value);
        }
      }
    };
    spoil(2, "block0", kInfinity);
    EXPECT_EQ(first_nonfinite_unit(net), "block0");
    spoil(1, "block1", std::nan(""));
    EXPECT_EQ(first_nonfinite_unit(net), "block1");
    spoil(0, "block0", std::nan(""));
    EXPECT_EQ(first_nonfinite_unit(net), "block1");
    const auto error = [&] {
      return testing::message_of<c10::ValueError>(
          [&] { clip_grad_norm_(net, 1.0, 2.0, true); });
    };
    EXPECT_NE(error().find("not finite in 'block1'"), std::string::npos);
    spoil(2, "", std::nan(""));
    EXPECT_EQ(first_nonfinite_unit(net), "");
    EXPECT_NE(error().find("not finite in the root"), std::string::npos);
  });
}

TEST(ClipGradNorm, SaysWhenFiniteGradientsOverflow) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    auto net = seeded<Unit<testing::UnitNet>>();
    fully_shard(net, mesh);
    backward(net);
    flat_shards(*net)[0].gradients[0].fill_(1e30);
    EXPECT_EQ(first_nonfinite_unit(net), std::nullopt);
    const auto message = testing::message_of<c10::ValueError>(
        [&] { clip_grad_norm_(net, 1.0, 2.0, true); });
    EXPECT_NE(message.find("is inf: every gradient is finite"),
              std::string::npos)
        << message;
  });
}

TEST(ClipGradNorm, RejectsNormsAndBoundsThatAreNone) {
  on_ranks(1, [](const DeviceMesh& mesh) {
    auto net = seeded<Unit<testing::UnitNet>>();
    fully_shard(net, mesh);
    EXPECT_NE(testing::message_of<c10::ValueError>([&] {
                clip_grad_norm_(net, -1.0);
              }).find("max_norm is -1"),
              std::string::npos);
    EXPECT_NE(testing::message_of<c10::ValueError>([&] {
                clip_grad_norm_(net, 1.0, 0.0);
              }).find("norm_type is 0"),
              std::string::npos);
  });
}

}  // namespace
}  // namespace accordion
