// SPDX-License-Identifier: BSD-3-Clause
//
// Gathers in place: the numbers and the memory.
#include <algorithm>
#include <optional>

#include "accordion/comm/communicator.h"
#include "accordion/fsdp/controls.h"
#include "accordion/fsdp/describe.h"
#include "accordion/fsdp/full_parameters.h"
#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/offload/offload_target.h"
#include "accordion/optim/adamw.h"
#include "accordion/optim/clip_grad_norm.h"
#include "accordion/optim/step_in_backward.h"
#include "tests/fsdp/odd_net.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using testing::class_loss;
using testing::classes_of;
using testing::mean_over_ranks;
using testing::message_of;
using testing::on_ranks;
using testing::rows_of;
using testing::seeded;
using testing::tokens_of;

using OddNet = Unit<testing::UnitOddNet>;

// ---- What it computes and holds --------------------------------------------

constexpr int kRows = 48;  // divides by 1, 2, 3, 4 ranks and 2 microbatches

/// Losses and norms of a few steps of two microbatches.
std::vector<double> curve_of(int world, const FsdpOptions& options) {
  std::vector<double> curve;
  std::vector<OddNet> nets;
  for (int rank = 0; rank < world; ++rank) {
    nets.push_back(seeded<OddNet>());
  }
  on_ranks(world, [&](const DeviceMesh& mesh) {
    OddNet& net = nets[static_cast<std::size_t>(mesh.rank())];
    fully_shard(net, mesh, options);
    AdamW optimizer(net, {.lr = 1e-2});
    std::optional<StepInBackward> stepper;
    if (options.step_in_backward) {
      stepper.emplace(net, optimizer, StepInBackward::Options{});
    }
    for (int step = 0; step < 4; ++step) {
      for (int k = 0; k < 2; ++k) {
        const auto mine = [&](const torch::Tensor& batch) {
          return rows_of(rows_of(batch, k, 2), mesh.rank(), world);
        };
        set_is_last_backward(*net, k == 1);
        const auto loss = class_loss(net(mine(tokens_of(step, kRows))),
                                     mine(classes_of(step, kRows)));
        loss.backward();
        const double mean = mean_over_ranks(mesh, loss.item<double>());
        if (mesh.rank() == 0) {
          curve.push_back(mean);
        }
      }
      if (stepper) {
        stepper->end_step();
        continue;
      }
      const double norm = clip_grad_norm_(net, 0.2);
      optimizer.step();
      optimizer.zero_grad();
      if (mesh.rank() == 0) {
        curve.push_back(norm);
      }
    }
    const ShardedBytes held = sharded_bytes(*net);
    const bool casts = options.precision.param_dtype.has_value();
    const bool in_place = options.gather_in_place && world > 1 &&
                          (!casts || options.copies_in_place);
    for (const ScheduledUnit& unit : step_schedule(*net).units) {
      EXPECT_EQ(unit.in_place, in_place);
    }
    EXPECT_EQ(held.parameter_slots == 0, in_place || (world == 1 && !casts));
    EXPECT_EQ(held.whole_copies * 2, in_place && casts ? held.parameters : 0);
    EXPECT_EQ(to_text(describe(net)).find(" in place") != std::string::npos,
              in_place);
  });
  return curve;
}

class InPlace : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(World, InPlace, ::testing::Values(1, 2, 3, 4));

std::vector<FsdpOptions> variants_of_strategy() {
  std::vector<FsdpOptions> variants(6);
  variants[1].strategy = Strategy::ShardGradOp;
  variants[2].strategy = Strategy::ShardOptimizer;
  variants[3].strategy = Strategy::ShardGradOp;
  variants[3].keep_parameters_across_microbatches = true;
  variants[4].static_graph = false;
  variants[5].step_in_backward = true;
  variants[5].accumulation = Accumulation::Unsharded;
  return variants;
}

// Same bytes in the same order of arithmetic, wherever they lie.
TEST_P(InPlace, CurveIsThatWithSlotsBitForBit) {
  for (const bool copies : {false, true}) {
    std::vector<FsdpOptions> variants = variants_of_strategy();
    for (std::size_t i = 0; i < variants.size(); ++i) {
      SCOPED_TRACE("variant " + std::to_string(i) + (copies ? " in bf16" : ""));
      FsdpOptions& in_place = variants[i];
      if (copies) {
        in_place.precision.param_dtype = torch::kBFloat16;
        in_place.copies_in_place = true;
      }
      FsdpOptions slots = in_place;
      slots.gather_in_place = false;
      EXPECT_EQ(curve_of(GetParam(), in_place), curve_of(GetParam(), slots));
    }
  }
}

/// Of the options, on two ranks: whether units are gathered in place.
bool gathers_in_place(const FsdpOptions& options, int world = 2) {
  bool in_place = false;
  on_ranks(world, [&](const DeviceMesh& mesh) {
    OddNet net = seeded<OddNet>();
    fully_shard(net, mesh, options);
    class_loss(net(tokens_of(0, 4)), classes_of(0, 4)).backward();
    const StepSchedule schedule = step_schedule(*net);
    const auto count =
        std::ranges::count(schedule.units, true, &ScheduledUnit::in_place);
    EXPECT_TRUE(count == 0 || count == std::ssize(schedule.units));
    EXPECT_EQ(count == 0, sharded_bytes(*net).parameter_slots > 0);
    if (mesh.rank() == 0) {
      in_place = count > 0;
    }
  });
  return in_place;
}

TEST(InPlace, IsForWholeShardsOfTheStoredDtypeInMemory) {
  EXPECT_TRUE(gathers_in_place({}));
  EXPECT_TRUE(gathers_in_place({.precision = {.param_dtype = torch::kFloat}}));
  EXPECT_TRUE(gathers_in_place({.min_shard_numel = 50}));
  EXPECT_FALSE(
      gathers_in_place({.precision = {.param_dtype = torch::kBFloat16}}));
  EXPECT_TRUE(gathers_in_place({.precision = {.param_dtype = torch::kBFloat16},
                                .copies_in_place = true}));
  EXPECT_FALSE(gathers_in_place({.precision = {.param_dtype = torch::kBFloat16},
                                 .gather_in_place = false,
                                 .copies_in_place = true}));
  EXPECT_FALSE(gathers_in_place({.reshard_to_ranks = 2}, 4));
  EXPECT_FALSE(gathers_in_place({.gather_in_place = false}));
  HostPool pool(1 << 20);
  FsdpOptions offloaded;
  offloaded.offload =
      OffloadPolicy{.to = offload_to_host(pool), .parameters = true};
  EXPECT_FALSE(gathers_in_place(offloaded));
}

TEST(InPlace, PiecesOutliveModuleAndMesh) {
  std::vector<torch::Tensor> pieces(2);
  on_ranks(2, [&](const DeviceMesh& mesh) {
    OddNet net = seeded<OddNet>();
    fully_shard(net, mesh);
    pieces[static_cast<std::size_t>(mesh.rank())] =
        local_parameters(*net).front().piece;
  });
  const auto expected = seeded<testing::PlainOddNet>()->embed->weight.flatten();
  EXPECT_TRUE(
      torch::equal(torch::cat(pieces).slice(0, 0, expected.numel()), expected));
}

TEST(InPlace, WhatIsWrittenOutsideOfPassesIsGathered) {
  on_ranks(3, [&](const DeviceMesh& mesh) {
    OddNet net = seeded<OddNet>();
    fully_shard(net, mesh);
    const torch::NoGradGuard no_grad;
    for (const LocalParameter& local : local_parameters(*net)) {
      local.piece.fill_(0.5);
    }
    EXPECT_TRUE(torch::equal(full_parameter(*net, "block0.up.bias"),
                             torch::full({testing::kHidden}, 0.5)));
    {
      SummonFullParameters whole(net);
      net->blocks[0]->up->bias.fill_(0.25);
    }
    adopt_assignments(*net);
    unshard(*net->blocks[0]).wait();
    EXPECT_TRUE(torch::equal(net->blocks[0]->up->bias,
                             torch::full({testing::kHidden}, 0.25)));
    reshard(*net);
  });
}

TEST(InPlace, ParametersAreNotReadWhileTheyAreResharded) {
  on_ranks(2, [&](const DeviceMesh& mesh) {
    OddNet net = seeded<OddNet>();
    fully_shard(net, mesh);
    unshard(*net->blocks[0]).wait();
    const torch::Tensor kept = net->blocks[0]->up->weight.detach();
    EXPECT_EQ(kept.sum().isfinite().item<bool>(), true);
    reshard(*net);
    EXPECT_NE(message_of<std::exception>([&] {
                (void)kept.sum().item<float>();
              }).find("were read while they were resharded"),
              std::string::npos);
  });
}

}  // namespace
}  // namespace accordion
