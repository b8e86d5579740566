// SPDX-License-Identifier: BSD-3-Clause
// Steps inside backward do what steps after it do, with the gradients of a unit
// or two in memory.
#include "accordion/optim/step_in_backward.h"

#include <limits>

#include <gmock/gmock.h>

#include "accordion/fsdp/controls.h"
#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/fsdp/step_trace.h"
#include "accordion/optim/clip_grad_norm.h"
#include "tests/fsdp/odd_net.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using testing::class_loss;
using testing::classes_of;
using ::testing::HasSubstr;
using testing::message_of;
using testing::on_ranks;
using testing::rows_of;
using testing::seeded;
using testing::tokens_of;

using Net = Unit<testing::UnitNet>;
using OddNet = Unit<testing::UnitOddNet>;
using Clip = StepInBackward::Clip;

constexpr int kRows = 48;
const AdamWOptions kAdamW{.lr = 1e-2, .weight_decay = 0.1};

/// Forward and backward of one step, on this rank's rows.
void backward(const DeviceMesh& mesh, OddNet& net, int step, int microbatches) {
  for (int k = 0; k < microbatches; ++k) {
    const auto mine = [&](const torch::Tensor& batch) {
      return rows_of(rows_of(batch, k, microbatches), mesh.rank(),
                     mesh.world_size());
    };
    set_is_last_backward(*net, k == microbatches - 1);
    class_loss(net(mine(tokens_of(step, kRows))), mine(classes_of(step, kRows)))
        .backward();
  }
}

void backward(Net& net, int step) {
  net(testing::batch_of(step, 4)).square().mean().backward();
}

/// Bit for bit; names the parameter.
void expect_same_pieces(const torch::nn::Module& got,
                        const torch::nn::Module& want,
                        const std::string& what) {
  const auto expected = local_parameters(want);
  const auto pieces = local_parameters(got);
  ASSERT_EQ(pieces.size(), expected.size());
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_TRUE(torch::equal(pieces[i].piece, expected[i].piece))
        << pieces[i].name << ", " << what;
  }
}

struct Setting {
  std::string name;
  std::vector<MeshAxis> axes;
  FsdpOptions options;
  int microbatches = 1;
};

class StepInBackwardOf : public ::testing::TestWithParam<Setting> {};

TEST_P(StepInBackwardOf, EqualsStepAfterIt) {
  const Setting& setting = GetParam();
  const auto nets_for = [&setting] {
    std::size_t ranks = 1;
    for (const MeshAxis& axis : setting.axes) {
      ranks *= static_cast<std::size_t>(axis.size);
    }
    std::vector<OddNet> nets;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      nets.push_back(seeded<OddNet>());
    }
    return nets;
  };
  std::vector<OddNet> after_nets = nets_for();
  std::vector<OddNet> inside_nets = nets_for();
  auto meshes = make_local_meshes(setting.axes, std::chrono::seconds(30));
  testing::on_meshes(std::move(meshes), [&](const DeviceMesh& mesh) {
    auto& after = after_nets[static_cast<std::size_t>(mesh.rank())];
    auto& inside = inside_nets[static_cast<std::size_t>(mesh.rank())];
    FsdpOptions options = setting.options;
    fully_shard(after, mesh, options);
    options.step_in_backward = true;
    fully_shard(inside, mesh, options);
    AdamW optimizer(after, kAdamW);
    AdamW stepped(inside, kAdamW);
    StepInBackward stepper(inside, stepped, {});
    for (int step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      backward(mesh, after, step, setting.microbatches);
      const double norm = reduced_grad_norm(*after);
      optimizer.step();
      backward(mesh, inside, step, setting.microbatches);
      EXPECT_NEAR(stepper.end_step().grad_norm, norm, 1e-12 * norm);
      expect_same_pieces(*inside, *after, "step " + std::to_string(step));
    }
    for (const LocalParameter& piece : local_parameters(*inside)) {
      EXPECT_FALSE(piece.parameter.grad().defined()) << piece.name;
    }
    EXPECT_EQ(validate(step_schedule(*inside)), "");
  });
}

std::vector<Setting> settings() {
  std::vector<Setting> result;
  const std::vector<std::pair<std::string, FsdpOptions>> options = {
      {"full_shard", {}},
      {"bf16",
       {.precision = {.param_dtype = torch::kBFloat16,
                      .reduce_dtype = torch::kFloat}}},
      {"shard_grad_op", {.strategy = Strategy::ShardGradOp}},
      {"shard_optimizer", {.strategy = Strategy::ShardOptimizer}},
      {"no_shard", {.strategy = Strategy::NoShard}},
      {"small_replicated", {.min_shard_numel = 50}},
      {"no_prefetch", {.prefetch = 0}},
      {"dynamic_graph", {.static_graph = false}},
      {"checkpointed", {.activation_checkpointing = ActivationCheckpointing()}},
  };
  for (int world = 1; world <= 4; ++world) {
    for (const auto& [name, of] : options) {
      result.push_back(
          {name + "_w" + std::to_string(world), {{"shard", world}}, of});
    }
    for (const auto strategy :
         {Strategy::FullShard, Strategy::ShardOptimizer}) {
      result.push_back(
          {"whole_sums_" + std::to_string(static_cast<int>(strategy)) + "_w" +
               std::to_string(world),
           {{"shard", world}},
           {.strategy = strategy, .accumulation = Accumulation::Unsharded},
           4});
    }
  }
  for (const auto& [replicas, shards] :
       std::vector<std::pair<int, int>>{{2, 1}, {2, 2}, {3, 1}}) {
    result.push_back(
        {"hybrid_" + std::to_string(replicas) + "x" + std::to_string(shards),
         {{"replicate", replicas}, {"shard", shards}},
         {}});
  }
  result.push_back({"hpz_4_to_2", {{"shard", 4}}, {.reshard_to_ranks = 2}});
  return result;
}

INSTANTIATE_TEST_SUITE_P(All, StepInBackwardOf, ::testing::ValuesIn(settings()),
                         [](const ::testing::TestParamInfo<Setting>& info) {
                           return info.param.name;
                         });

TEST(StepInBackward, HoldsGradientsOfTwoUnitsAtMost) {
  for (const int world : {1, 2, 3}) {
    on_ranks(world, [&](const DeviceMesh& mesh) {
      auto net = seeded<Net>();
      fully_shard(net, mesh, {.step_in_backward = true});
      AdamW optimizer(net, kAdamW);
      StepInBackward stepper(net, optimizer, {});
      std::int64_t largest = 0;
      for (const FlatShard& shard : flat_shards(*net)) {
        largest = std::max(largest,
                           static_cast<std::int64_t>(shard.gradients.nbytes()));
      }
      const std::int64_t before = sharded_bytes(*net).gradients;
      EXPECT_EQ(before, 2 * ((largest + 63) / 64 * 64));
      for (int step = 0; step < 3; ++step) {
        backward(net, step);
        EXPECT_EQ(sharded_bytes(*net).gradients, before) << "step " << step;
      }
      EXPECT_EQ(optimizer.state_bytes(), 2 * sharded_bytes(*net).parameters);
    });
  }
}

TEST(StepInBackward, StepsUnitsInTheOrderInWhichTheirBackwardsEnd) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    auto net = seeded<Net>();
    fully_shard(net, mesh, {.step_in_backward = true});
    AdamW optimizer(net, kAdamW);
    StepInBackward stepper(net, optimizer, {});
    const auto trace = std::make_shared<StepTrace>();
    set_step_trace(*net, trace);
    for (int step = 0; step < 3; ++step) {  // on demand first, then replayed
      trace->begin_step();
      backward(net, step);
      std::vector<int> stepped;
      for (const Span& span : trace->spans()) {
        if (span.kind == SpanKind::Optimizer) {
          stepped.push_back(span.unit);
        }
      }
      EXPECT_EQ(stepped, (std::vector<int>{0, 3, 2, 1})) << "step " << step;
    }
  });
}

/// Clips by hand what StepInBackward clips, after backward.
void step_after(Net& net, AdamW& optimizer, Clip clip, double max_norm,
                std::optional<double>& previous) {
  std::map<std::string, double> squares;
  double sum = 0;
  for (const FlatShard& shard : flat_shards(*net)) {
    squares[shard.unit] += shard.gradients.square().sum().item<double>();
  }
  for (const auto& [unit, of_unit] : squares) {
    sum += of_unit;
  }
  for (const auto& [unit, of_unit] : squares) {
    const bool own = clip == Clip::UnitNorm || !previous;
    optimizer.step_unit(
        unit, clip_coefficient(own ? std::sqrt(of_unit) : *previous, max_norm));
  }
  previous = std::sqrt(sum);
}

TEST(StepInBackward, ClipsByTheNormBeforeOrOfTheUnit) {
  for (const Clip clip : {Clip::PreviousNorm, Clip::UnitNorm}) {
    on_ranks(1, [&](const DeviceMesh& mesh) {
      auto inside = seeded<Net>();
      auto after = seeded<Net>();
      constexpr double kMaxNorm = 0.05;
      fully_shard(inside, mesh, {.step_in_backward = true});
      fully_shard(after, mesh);
      AdamW stepped(inside, kAdamW);
      AdamW optimizer(after, kAdamW);
      StepInBackward stepper(inside, stepped,
                             {.max_norm = kMaxNorm, .clip = clip});
      std::optional<double> previous;
      for (int step = 0; step < 4; ++step) {
        backward(inside, step);
        EXPECT_GT(stepper.end_step().grad_norm, kMaxNorm);
        optimizer.zero_grad();
        backward(after, step);
        step_after(after, optimizer, clip, kMaxNorm, previous);
        EXPECT_NEAR(*stepper.previous_norm(), *previous, 1e-6 * *previous);
      }
      for (const LocalParameter& piece : local_parameters(*inside)) {
        EXPECT_TRUE(torch::allclose(
            piece.piece, full_parameter(*after, piece.name).flatten(), 1e-5,
            1e-6))
            << piece.name;
      }
    });
  }
}

TEST(StepInBackward, GoesOnWithTheNormOfARunThatIsResumed) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    auto whole = seeded<Net>();
    auto resumed = seeded<Net>();
    const FsdpOptions options{.step_in_backward = true};
    fully_shard(whole, mesh, options);
    fully_shard(resumed, mesh, options);
    AdamW first(whole, kAdamW);
    AdamW second(resumed, kAdamW);
    const StepInBackward::Options clipped{.max_norm = 0.05};
    StepInBackward stepper(whole, first, clipped);
    auto part = std::make_unique<StepInBackward>(resumed, second, clipped);
    for (int step = 0; step < 4; ++step) {
      if (step == 2) {
        const std::optional<double> norm = part->previous_norm();
        part.reset();
        part = std::make_unique<StepInBackward>(resumed, second, clipped);
        part->set_previous_norm(norm);
      }
      backward(whole, step);
      stepper.end_step();
      backward(resumed, step);
      part->end_step();
    }
    expect_same_pieces(*resumed, *whole, "resumed at step 2");
  });
}

/// Multiplies the gradient of what a block returns.
struct HookedNetImpl : testing::NetImpl<Unit> {
  torch::Tensor forward(torch::Tensor x) {
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      x = blocks[i](x);
      if (i == hooked) {
        const double by = factor;
        x.register_hook([by](const torch::Tensor& g) { return g * by; });
      }
    }
    return head(x);
  }
  std::size_t hooked = 0;
  double factor = 1.0;
};
TORCH_MODULE(HookedNet);

TEST(StepInBackward, LeavesOutTheUnitsFromTheFirstNonfiniteOneOn) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    auto net = seeded<Unit<HookedNet>>();
    fully_shard(net, mesh, {.step_in_backward = true});
    AdamW optimizer(net, kAdamW);
    StepInBackward stepper(net, optimizer,
                           {.max_norm = 1.0, .skip_nonfinite = true});
    const auto step = [&] {
      net(testing::batch_of(0, 4)).square().mean().backward();
      return stepper.end_step();
    };
    EXPECT_EQ(step().nonfinite_unit, std::nullopt);
    const std::optional<double> norm = stepper.previous_norm();
    std::map<std::string, torch::Tensor> before;
    for (const LocalParameter& piece : local_parameters(*net)) {
      before[piece.name] = piece.piece.clone();
    }
    net->hooked = 1;
    net->factor =
        mesh.rank() == 0 ? std::numeric_limits<double>::infinity() : 1.0;
    const StepInBackward::Step result = step();
    EXPECT_EQ(result.nonfinite_unit, "block1");
    EXPECT_FALSE(std::isfinite(result.grad_norm));
    EXPECT_EQ(stepper.previous_norm(), norm);
    for (const LocalParameter& piece : local_parameters(*net)) {
      if (piece.piece.numel() > 0) {
        const bool stepped_before =
            piece.name.starts_with("block2") || piece.name.starts_with("head");
        EXPECT_EQ(torch::equal(piece.piece, before[piece.name]),
                  !stepped_before)
            << piece.name;
      }
    }
    net->factor = 1.0;
    EXPECT_EQ(step().nonfinite_unit, std::nullopt);
    for (const LocalParameter& piece : local_parameters(*net)) {
      EXPECT_TRUE(torch::isfinite(piece.piece).all().item<bool>());
    }
  });
}

TEST(StepInBackward, UnitsThatAreFrozenInBetweenAreNotStepped) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    auto net = seeded<Net>();
    fully_shard(net, mesh, {.step_in_backward = true});
    AdamW optimizer(net, kAdamW);
    StepInBackward stepper(net, optimizer, {});
    const auto block1 = [&] {
      return full_parameter(*net, "block1.up.weight").clone();
    };
    const auto set_trainable = [&](bool trainable) {
      for (auto& parameter : net->blocks[1]->parameters()) {
        parameter.set_requires_grad(trainable);
      }
    };
    backward(net, 0);
    const auto frozen = block1();
    set_trainable(false);
    backward(net, 1);
    EXPECT_TRUE(torch::equal(block1(), frozen));
    set_trainable(true);
    backward(net, 2);
    EXPECT_FALSE(torch::equal(block1(), frozen));
  });
}

TEST(StepInBackward, AStepThatThrowsLosesNothing) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    auto net = seeded<Net>();
    fully_shard(net, mesh, {.step_in_backward = true});
    set_unit_step(*net, [](const CompleteUnit& unit) {
      TORCH_CHECK(unit.name != "block1", "no step");
    });
    const std::int64_t bytes = sharded_bytes(*net).gradients;
    EXPECT_THROW(backward(net, 0), c10::Error);
    set_unit_step(*net, {});
    AdamW optimizer(net, kAdamW);
    StepInBackward stepper(net, optimizer, {});
    backward(net, 1);
    EXPECT_GT(stepper.end_step().grad_norm, 0.0);
    EXPECT_EQ(sharded_bytes(*net).gradients, bytes) << "slots came back";
  });
}

TEST(StepInBackward, MistakesAreNamed) {
  on_ranks(1, [](const DeviceMesh& mesh) {
    auto plain = seeded<Net>();
    fully_shard(plain, mesh);
    AdamW of_plain(plain, kAdamW);
    const auto make = [](Net& net, AdamW& optimizer, double max_norm) {
      return message_of<c10::ValueError>(
          [&] { StepInBackward(net, optimizer, {.max_norm = max_norm}); });
    };
    EXPECT_THAT(make(plain, of_plain, 0),
                HasSubstr("without step_in_backward"));

    auto net = seeded<Net>();
    fully_shard(net, mesh, {.step_in_backward = true});
    AdamW optimizer(net, kAdamW);
    EXPECT_THAT(make(net, of_plain, 0), HasSubstr("made for another module"));
    EXPECT_THAT(make(net, optimizer, -1), HasSubstr("max_norm is -1"));
    EXPECT_THAT(message_of<c10::ValueError>([&] { backward(net, 0); }),
                HasSubstr("no optimizer steps it"));
    {
      const StepInBackward stepper(net, optimizer, {});
      EXPECT_THAT(make(net, optimizer, 0), HasSubstr("steps the module in"));
    }
    StepInBackward stepper(net, optimizer, {});
    set_is_last_backward(*net, false);
    EXPECT_THAT(message_of<c10::ValueError>([&] { backward(net, 0); }),
                HasSubstr("not the last of its step would step (root)"));
    set_is_last_backward(*net, true);
    backward(net, 0);
    EXPECT_THAT(message_of<c10::Error>(
                    [&] { (void)full_gradient(*net, "head.weight"); }),
                HasSubstr("read outside of its step"));
  });
  testing::on_meshes(
      make_local_meshes({{"replicate", 2}, {"shard", 1}},
                        std::chrono::seconds(30)),
      [](const DeviceMesh& mesh) {
        auto net = seeded<Net>();
        fully_shard(net, mesh, {.step_in_backward = true});
        AdamW optimizer(net, kAdamW);
        StepInBackward stepper(net, optimizer, {});
        set_requires_all_reduce(*net, false);
        EXPECT_THAT(message_of<c10::ValueError>([&] { backward(net, 0); }),
                    HasSubstr("not all-reduced over the replicas"));
      });
}

TEST(StepInBackward, AUnitWhoseBackwardBeginsAgainIsNamed) {
  on_ranks(1, [](const DeviceMesh& mesh) {
    auto net = seeded<Unit<HookedNet>>();
    fully_shard(net, mesh, {.step_in_backward = true});
    AdamW optimizer(net, kAdamW);
    StepInBackward stepper(net, optimizer, {});
    auto x = testing::batch_of(0, 4).requires_grad_();
    const auto twice = [&](const torch::Tensor& g) {
      const at::AutoGradMode on(true);
      for (int i = 0; i < 2; ++i) {
        net->blocks[0](testing::batch_of(1, 4)).sum().backward();
      }
      return g;
    };
    const auto y = net->blocks[2](x);
    y.register_hook(twice);
    EXPECT_THAT(message_of<c10::ValueError>([&] { y.sum().backward(); }),
                HasSubstr("begins again after the optimizer stepped it"));
  });
}

}  // namespace
}  // namespace accordion
