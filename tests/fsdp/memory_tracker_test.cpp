// SPDX-License-Identifier: BSD-3-Clause
//
// Bytes by formula: units whose parameters are cut without padding, and an
// input whose size says how large each activation is.
#include "accordion/fsdp/memory_tracker.h"

#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>

#include "accordion/fsdp/controls.h"
#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/module/unit.h"
#include "accordion/optim/adamw.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kWidth = 96;
constexpr int kBlocks = 3;
constexpr int kRows = 640;
/// A tensor of the input's shape, the parameters of a block, and of all blocks.
constexpr std::int64_t kActivation = kRows * kWidth * 4;
constexpr std::int64_t kBlock = 2 * kWidth * kWidth * 4;
constexpr std::int64_t kNet = kBlocks * kBlock;

struct PairImpl : torch::nn::Module {
  PairImpl() {
    const auto square = torch::nn::LinearOptions(kWidth, kWidth).bias(false);
    up = register_module("up", torch::nn::Linear(square));
    down = register_module("down", torch::nn::Linear(square));
  }
  /// Saves two activations, its output among them; holds a third on the way.
  torch::Tensor forward(torch::Tensor x) {
    x = up(x);
    x = torch::tanh(x);
    x = down(x);
    x = torch::tanh(x);
    return x;
  }
  torch::nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(Pair);

/// Its root holds nothing besides.
struct StackImpl : torch::nn::Module {
  StackImpl() {
    for (int i = 0; i < kBlocks; ++i) {
      blocks.push_back(
          register_module("block" + std::to_string(i), Unit<Pair>()));
    }
  }
  torch::Tensor forward(torch::Tensor x) {
    for (auto& block : blocks) {
      x = block(x);
    }
    return x;
  }
  std::vector<Unit<Pair>> blocks;
};
TORCH_MODULE(Stack);

Unit<Stack> seeded_stack() {
  static std::mutex generator;
  const std::lock_guard lock(generator);
  torch::manual_seed(5);
  return Unit<Stack>();
}

/// One rank's training of the stack, tracked from its beginning.
struct Training {
  Training(const DeviceMesh& mesh, const FsdpOptions& options)
      : net(seeded_stack()), input(torch::ones({kRows, kWidth})) {
    fully_shard(net, mesh, options);
    optimizer = std::make_unique<AdamW>(net, AdamWOptions{});
    memory.watch(
        net, {.optimizer_bytes = [this] { return optimizer->state_bytes(); }});
    trace = std::make_shared<StepTrace>();
    set_step_trace(*net, trace);
    memory.set_trace(trace);
  }

  float step() {
    trace->begin_step();
    const MemoryPhaseScope forward(memory, MemoryPhase::Forward);
    const torch::Tensor loss = net(input).sum();
    const MemoryPhaseScope backward(memory, MemoryPhase::Backward);
    loss.backward();
    const MemoryPhaseScope update(memory, MemoryPhase::Optimizer);
    optimizer->step();
    optimizer->zero_grad();
    return loss.item<float>();
  }

  MemoryTracker memory;
  Unit<Stack> net;
  torch::Tensor input;
  std::unique_ptr<AdamW> optimizer;
  std::shared_ptr<StepTrace> trace;
};

std::int64_t generator_bytes() {
  const auto generator = at::detail::getDefaultCPUGenerator();
  return static_cast<std::int64_t>(generator.get_state().nbytes());
}

std::int64_t sum(const std::vector<std::int64_t>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

/// Trains the stack, and compares what is held at rest with the formula.
void check_kinds(int world, const FsdpOptions& options) {
  testing::on_ranks(world, [&](const DeviceMesh& mesh) {
    Training training(mesh, options);
    training.step();
    training.step();
    const MemoryByKind held = training.memory.now();
    const bool whole = options.strategy == Strategy::NoShard || world == 1;
    const std::int64_t share = whole ? kNet : kNet / world;
    EXPECT_EQ(held.sharded_parameters, share);
    EXPECT_EQ(held.gradients, share);
    EXPECT_EQ(held.optimizer, 2 * share);
    // Two units at a time and a spare; or all of them, and a spare.
    const bool kept = options.strategy != Strategy::FullShard;
    const int slots = kept ? kBlocks : 3;
    const bool takes_slots = !whole && !options.gather_in_place;
    EXPECT_EQ(held.unsharded_parameters,
              takes_slots ? slots * kBlock / world : 0);
    EXPECT_EQ(held.communication_buffers,
              sum(step_schedule(*training.net).gradient_slots));
    EXPECT_GE(held.communication_buffers, kBlock);
    EXPECT_EQ(held.activations, 0) << "none outlives the step";
    EXPECT_EQ(held.other, kActivation) << "the input";
  });
}

TEST(MemoryTracker, KindsAreThoseOfTheFormulaAtAnyWorldSizeAndStrategy) {
  for (const int world : {1, 2, 3, 4}) {
    for (const auto strategy : {Strategy::FullShard, Strategy::ShardGradOp,
                                Strategy::ShardOptimizer, Strategy::NoShard}) {
      for (const bool in_place : {true, false}) {
        SCOPED_TRACE("strategy " + std::to_string(static_cast<int>(strategy)) +
                     ", world " + std::to_string(world) +
                     (in_place ? ", in place" : ", with slots"));
        FsdpOptions options;
        options.strategy = strategy;
        options.gather_in_place = in_place;
        check_kinds(world, options);
      }
    }
  }
}

TEST(MemoryTracker, ActivationsAreThoseThatBackwardNeedsAndOnesOnTheWay) {
  for (const bool checkpointed : {false, true}) {
    testing::on_ranks(2, [&](const DeviceMesh& mesh) {
      FsdpOptions options;
      if (checkpointed) {
        options.activation_checkpointing = ActivationCheckpointing();
      }
      Training training(mesh, options);
      training.step();
      (void)training.memory.take_peak();
      training.step();
      const MemoryPeak peak = training.memory.take_peak();
      // In the last block: what the blocks before saved (two each, or their
      // output), and of its own what it saves and one on the way (or two).
      const std::int64_t expected = checkpointed ? 2 + 2 : 4 + 3;
      // Calls that are made again keep the state of the random numbers.
      const std::int64_t random =
          checkpointed ? kBlocks * generator_bytes() : 0;
      EXPECT_EQ(peak.of(MemoryPhase::Forward).activations,
                expected * kActivation + random);
      EXPECT_GT(peak.of(MemoryPhase::Backward).activations, 0);
      EXPECT_LT(peak.of(MemoryPhase::Optimizer).activations, kActivation);
      EXPECT_EQ(peak.of(MemoryPhase::Optimizer).optimizer, kNet);
    });
  }
}

TEST(MemoryTracker, PeakStaysTheSameFromTheThirdStepOn) {
  for (const int world : {1, 2, 3}) {
    testing::on_ranks(world, [&](const DeviceMesh& mesh) {
      Training training(mesh, {});
      std::vector<MemoryPeak> peaks;
      for (int step = 0; step < 6; ++step) {
        training.step();
        peaks.push_back(training.memory.take_peak());
      }
      for (std::size_t step = 3; step < peaks.size(); ++step) {
        EXPECT_EQ(peaks[step].by_phase, peaks[2].by_phase) << "step " << step;
      }
      EXPECT_GE(training.memory.peak().highest().total(),
                peaks.back().highest().total());
    });
  }
}

TEST(MemoryTracker, ChangesNoResult) {
  const auto losses_of = [](bool tracked) {
    std::vector<float> losses;
    testing::on_ranks(2, [&](const DeviceMesh& mesh) {
      auto net = seeded_stack();
      fully_shard(net, mesh);
      AdamW optimizer(net, {});
      std::unique_ptr<MemoryTracker> memory;
      if (tracked) {
        memory = std::make_unique<MemoryTracker>();
        memory->watch(net, {});
        memory->set_limit(std::int64_t{1} << 40);
      }
      for (int step = 0; step < 4; ++step) {
        const auto loss = net(torch::ones({kRows, kWidth})).square().mean();
        loss.backward();
        optimizer.step();
        optimizer.zero_grad();
        if (mesh.rank() == 0) {
          losses.push_back(loss.item<float>());
        }
      }
    });
    return losses;
  };
  EXPECT_EQ(losses_of(true), losses_of(false));  // bit for bit
}

TEST(MemoryTracker, MadeLateItShowsNothingBelowZero) {
  testing::on_ranks(2, [](const DeviceMesh& mesh) {
    auto net = seeded_stack();
    fully_shard(net, mesh);
    auto optimizer = std::make_unique<AdamW>(net, AdamWOptions{});
    auto early = std::make_unique<torch::Tensor>(torch::ones({1000}));
    MemoryTracker memory;
    memory.watch(net,
                 {.optimizer_bytes = [&] { return optimizer->state_bytes(); }});
    early.reset();
    EXPECT_EQ(memory.now().other, 0);
    EXPECT_EQ(memory.now().activations, 0);
    EXPECT_EQ(memory.now().sharded_parameters, kNet / 2);
    EXPECT_EQ(memory.now().optimizer, kNet);
  });
}

TEST(MemoryTracker, LimitNamesKindsAndUnitOfTheForward) {
  testing::on_ranks(1, [](const DeviceMesh& mesh) {
    Training training(mesh, {});
    training.step();
    // Room for the first block (three), and not for the second (five).
    const std::int64_t held = training.memory.now().total();
    training.memory.set_limit(held + 7 * kActivation / 2);
    const std::string message =
        testing::message_of<MemoryError>([&] { training.step(); });
    EXPECT_THAT(message, HasSubstr("[memory] the limit of "));
    EXPECT_THAT(message, HasSubstr(" a rank is exceeded by 240.0 KiB more, in "
                                   "forward of unit 'block1'. Held: sharded "
                                   "parameters 216.0 KiB, gradients 216.0 KiB, "
                                   "optimizer 432.0 KiB, activations 720.0 "
                                   "KiB, communication buffers "));
    EXPECT_THAT(message, HasSubstr(" together."));
  });
}

TEST(MemoryTracker, LimitNamesTheUnitOfTheBackward) {
  testing::on_ranks(1, [](const DeviceMesh& mesh) {
    Training training(mesh, {});
    training.step();
    (void)training.memory.take_peak();
    training.step();
    const MemoryPeak peak = training.memory.take_peak();
    const std::int64_t forward = peak.of(MemoryPhase::Forward).total();
    ASSERT_GT(peak.of(MemoryPhase::Backward).total(), forward);
    training.memory.set_limit(forward);
    EXPECT_THAT(testing::message_of<MemoryError>([&] { training.step(); }),
                HasSubstr("in backward of unit 'block2'"));
  });
}

TEST(MemoryTracker, LimitBelowWhatIsHeldIsAnErrorAtOnce) {
  testing::on_ranks(2, [](const DeviceMesh& mesh) {
    Training training(mesh, {});
    const std::string message = testing::message_of<MemoryError>(
        [&] { training.memory.set_limit(kNet); });
    EXPECT_THAT(message, HasSubstr("is exceeded by what is held, in rest"));
    EXPECT_THAT(message, HasSubstr("gradients 108.0 KiB"));
    EXPECT_THAT(message, Not(HasSubstr("activations")));
  });
}

TEST(MemoryTracker, LimitThatSufficesIsNotFelt) {
  testing::on_ranks(2, [](const DeviceMesh& mesh) {
    Training training(mesh, {});
    training.step();
    training.step();
    training.memory.set_limit(training.memory.peak().highest().total());
    EXPECT_NO_THROW(training.step());
    EXPECT_NO_THROW(training.step());
  });
}

TEST(MemoryTracker, FailedAllocationSaysWhatWasHeldToo) {
  testing::on_ranks(1, [](const DeviceMesh& mesh) {
    Training training(mesh, {});
    const std::string message = testing::message_of<MemoryError>([&] {
      const MemoryPhaseScope phase(training.memory, MemoryPhase::Forward);
      torch::empty({std::int64_t{1} << 60}, torch::kByte);
    });
    EXPECT_THAT(message,
                HasSubstr("[memory] memory ran out (no limit is set): "
                          "1073741824.00 GiB could not be allocated, in "
                          "forward. Held: sharded parameters 216.0 KiB"));
    EXPECT_THAT(message, HasSubstr("can't allocate memory"));
  });
}

TEST(MemoryTracker, ModuleThatIsNotShardedIsAnError) {
  Unit<Stack> net;
  MemoryTracker memory;
  EXPECT_THAT(
      testing::message_of<c10::ValueError>([&] { memory.watch(net, {}); }),
      HasSubstr("[MemoryTracker] module"));
}

}  // namespace
}  // namespace accordion
