// SPDX-License-Identifier: BSD-3-Clause
//
// Gathers in place: the numbers and the memory, and that no rank writes to its
// shard while a peer reads it ([Note: gathers in place]).
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
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

// ---- Writes wait for readers -----------------------------------------------

/// What one thread tells another.
class Signal {
 public:
  void set() {
    const std::lock_guard lock(mutex_);
    is_set_ = true;
    changed_.notify_all();
  }
  /// Waits for it, but not for long: whoever is to set it may be waiting for
  /// this thread.
  bool wait_a_while() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::milliseconds(200),
                             [this] { return is_set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_set_ = false;
};

/// A unit that takes its time over its weight, and notes whether that changed.
struct WatchedImpl : torch::nn::Module {
  WatchedImpl() { weight = register_parameter("weight", torch::ones({64, 3})); }
  torch::Tensor forward(torch::Tensor x) {
    if (in_forward) {
      look();
    }
    torch::Tensor y = x * 2;
    if (in_backward && y.requires_grad()) {
      y.register_hook([this](const torch::Tensor& gradient) {
        look();
        return gradient;
      });
    }
    return y * weight.mean();
  }
  void look() {
    const torch::NoGradGuard no_grad;
    seen = weight.clone();
    if (pause) {
      pause();
    }
    changed |= !torch::equal(weight, seen);
  }

  torch::Tensor weight;  // [64, 3]
  torch::Tensor seen;    // the same
  std::function<void()> pause;
  bool in_forward = false;
  bool in_backward = false;
  bool changed = false;
};
TORCH_MODULE(Watched);

struct ChainImpl : torch::nn::Module {
  ChainImpl() {
    first = register_module("first", Unit<Watched>());
    second = register_module("second", Unit<Watched>());
  }
  torch::Tensor forward(torch::Tensor x) {
    x = first(x);
    if (between) {
      between();
    }
    x = second(x);
    return between ? first(x) : x;
  }
  Unit<Watched> first{nullptr}, second{nullptr};
  std::function<void()> between;  // and first once more, behind second
};
TORCH_MODULE(Chain);

using Net = Unit<Chain>;
/// What both ranks do, in the middle of which rank 1 reads and after which rank
/// 0 writes.
using Reading = std::function<void(Net&)>;

torch::Tensor input() {
  return torch::ones({2, 3}).requires_grad_();
}

void train(Net& net, bool is_last = true) {
  set_is_last_backward(*net, is_last);
  net(input()).sum().backward();
}

torch::Tensor piece_of(const Net& net, const std::string& name) {
  for (const LocalParameter& local : local_parameters(*net)) {
    if (local.name == name) {
      return local.piece;
    }
  }
  ADD_FAILURE() << name;
  return {};
}

/// Where a unit is watched: its name, and how to get at it.
struct Watch {
  const char* unit = "first";
  bool in_backward = false;

  [[nodiscard]] WatchedImpl& of(Net& net) const {
    return std::string(unit) == "first" ? *net->first : *net->second;
  }
};

/// Rank 1 reads for as long as rank 0 does not write, or for a while; rank 0
/// writes as soon as it comes to it.
void expect_write_waits(
    const FsdpOptions& options, const Watch& watch, const Reading& prepare,
    const Reading& read,
    const std::function<void(Net&, const torch::Tensor& piece)>& write =
        [](Net&, const torch::Tensor& piece) { piece.fill_(7.0); }) {
  Signal written;
  on_ranks(2, [&](const DeviceMesh& mesh) {
    Net net;
    fully_shard(net, mesh, options);
    WatchedImpl& watched = watch.of(net);
    const torch::Tensor piece =
        piece_of(net, std::string(watch.unit) + ".weight");
    prepare(net);
    const torch::Tensor before = piece.clone();
    (watch.in_backward ? watched.in_backward : watched.in_forward) = true;
    if (mesh.rank() == 1) {
      watched.pause = [&] { written.wait_a_while(); };
    }
    read(net);
    if (mesh.rank() == 0) {
      const torch::NoGradGuard no_grad;
      write(net, piece);
      EXPECT_FALSE(torch::equal(piece, before));
      written.set();
    }
    EXPECT_TRUE(watched.seen.defined()) << "nothing was read";
    EXPECT_FALSE(watched.changed) << "written while it was read";
    const auto after =
        full_parameter(*net, std::string(watch.unit) + ".weight").flatten();
    const auto half = after.numel() / 2;
    EXPECT_EQ(after.narrow(0, mesh.rank() * half, half).equal(piece), true);
  });
}

void nothing(Net&) {}

TEST(InPlaceWrites, WaitForTheEndOfAnEvaluation) {
  expect_write_waits({}, {.unit = "second"}, nothing, [](Net& net) {
    const torch::NoGradGuard no_grad;
    net(input());
  });
}

TEST(InPlaceWrites, WaitForTheEndOfAForward) {
  // Rank 0 needs nothing of rank 1 after what that gathers ahead.
  const auto prepare = [](Net& net) {
    train(net);
    set_forward_prefetch(*net->first, {net->second.get()});
    train(net);
  };
  expect_write_waits({.prefetch = 0}, {}, prepare,
                     [](Net& net) { net(input()); });
}

TEST(InPlaceWrites, WaitWhereNoBackwardFollows) {
  const auto prepare = [](Net& net) {
    train(net);
    train(net);
  };
  expect_write_waits({}, {.unit = "second"}, prepare, [](Net& net) {
    net(input());
    settle(*net);
  });
}

/// Nothing is reduced that would order what ranks read and write.
void freeze_first(Net& net) {
  net->first->weight.set_requires_grad(false);
  train(net);
  train(net);
}

TEST(InPlaceWrites, WaitForBackwardOfAFrozenUnit) {
  expect_write_waits({}, {.in_backward = true}, freeze_first,
                     [](Net& net) { train(net); });
}

TEST(InPlaceWrites, WaitForBackwardOfOneThatStaysWhole) {
  FsdpOptions options;
  options.keep_parameters_across_microbatches = true;
  const auto prepare = [](Net& net) {
    net->first->weight.set_requires_grad(false);
    for (const bool is_last : {false, true, false, true}) {
      train(net, is_last);
    }
  };
  expect_write_waits(options, {.in_backward = true}, prepare,
                     [](Net& net) { train(net, /*is_last=*/false); });
}

TEST(InPlaceWrites, WaitForReshardByHand) {
  const auto prepare = [](Net& net) { set_reshard_after_forward(*net, false); };
  expect_write_waits({}, {.unit = "second"}, prepare, [](Net& net) {
    const torch::NoGradGuard no_grad;
    net(input());
    reshard(*net);
  });
}

TEST(InPlaceWrites, OfWhatIsAssignedWithinAPassWaitForItsReaders) {
  const auto prepare = [](Net& net) {
    net->between = [] {};
    train(net);
    set_forward_prefetch(*net->first, {net->second.get()});
    train(net);
  };
  const auto assign = [](Net& net) {
    torch::Tensor& weight = net->first->weight;
    net->between = [&] { weight.set_data(torch::full_like(weight, 5.0)); };
    net(input());
  };
  expect_write_waits({.prefetch = 0}, {}, prepare, assign,
                     [](Net&, const torch::Tensor&) {});
}

TEST(InPlaceWrites, OfTheOptimizerWaitForAnEvaluationThatKeepsParameters) {
  std::vector<std::unique_ptr<AdamW>> optimizers(2);
  const auto prepare = [&](Net& net) {
    const auto rank = static_cast<std::size_t>(shard_communicator(*net).rank());
    optimizers[rank] = std::make_unique<AdamW>(net, AdamWOptions{.lr = 0.1});
    train(net);
    set_reshard_after_forward(*net, false);
  };
  expect_write_waits(
      {}, {.unit = "second"}, prepare,
      [](Net& net) {
        const torch::NoGradGuard no_grad;
        net(input());
      },
      [&](Net&, const torch::Tensor&) { optimizers[0]->step(); });
}

// Whole parameters show what peers wrote, and without a gather nothing else
// says when that is done.
TEST(InPlaceWrites, BetweenPassesAreSeenByTheNext) {
  Signal read;
  on_ranks(2, [&](const DeviceMesh& mesh) {
    Net net;
    FsdpOptions options;
    options.keep_parameters_across_microbatches = true;
    fully_shard(net, mesh, options);
    const torch::Tensor piece = piece_of(net, "first.weight");
    for (const bool is_last : {false, false, true, false}) {
      train(net, is_last);
    }
    if (mesh.rank() == 0) {
      EXPECT_FALSE(read.wait_a_while()) << "before it was written";
      piece.fill_(7.0);
    }
    WatchedImpl& first = *net->first;
    first.in_forward = true;
    first.pause = [&] { read.set(); };
    const std::int64_t meetings =
        mesh.world().counters().calls_of(CommOp::Barrier);
    const std::int64_t gathers =
        mesh.world().counters().calls_of(CommOp::AllGather);
    train(net, /*is_last=*/false);
    EXPECT_EQ(first.seen[0][0].item<float>(), 7.0F);
    EXPECT_EQ(mesh.world().counters().calls_of(CommOp::Barrier), meetings + 2)
        << "before and after";
    EXPECT_EQ(mesh.world().counters().calls_of(CommOp::AllGather), gathers);
  });
}

// ---- Copies ----------------------------------------------------------------

FsdpOptions with_copies() {
  return {.precision = {.param_dtype = torch::kBFloat16},
          .copies_in_place = true};
}

/// What the first unit computes with in a pass, of this rank's half.
torch::Tensor seen_in_pass(Net& net, int rank) {
  net->first->in_forward = true;
  train(net);
  net->first->in_forward = false;
  const torch::Tensor seen = net->first->seen.flatten().to(torch::kFloat);
  return seen.narrow(0, rank * seen.numel() / 2, seen.numel() / 2);
}

// What nothing but AdamW wrote is not cast again, and all else is.
TEST(InPlaceCopies, AreThoseOfAdamWUntilPiecesAreListed) {
  on_ranks(2, [&](const DeviceMesh& mesh) {
    const int rank = mesh.rank();
    Net net;
    fully_shard(net, mesh, with_copies());
    AdamW optimizer(net, {.lr = 0.25, .eps = 0.0, .weight_decay = 0.0});
    const torch::NoGradGuard no_grad;
    const torch::Tensor piece = piece_of(net, "first.weight");
    const auto pass = [&] {
      const at::AutoGradMode grad(true);
      return seen_in_pass(net, rank);
    };
    EXPECT_TRUE(torch::equal(pass(), torch::ones(96)));
    optimizer.step();
    piece.fill_(7.0);  // what is not to be done: it must not be cast
    EXPECT_TRUE(torch::equal(pass(), torch::full(96, 0.75)));
    optimizer.step();
    settle(*net);
    piece.fill_(6.0);
    EXPECT_TRUE(torch::equal(pass(), torch::full(96, 6.0)));
    piece.fill_(5.0);  // between passes, as other optimizers do
    EXPECT_TRUE(torch::equal(pass(), torch::full(96, 5.0)));
    optimizer.step();
    net->first->weight.set_data(torch::full({32, 3}, 4.0));
    EXPECT_TRUE(torch::equal(pass(), torch::full(96, 4.0)));
    optimizer.step();
    {
      SummonFullParameters whole(net);
      net->first->weight.fill_(3.0);
    }
    EXPECT_TRUE(torch::equal(pass(), torch::full(96, 3.0)));
    optimizer.step();
    piece.fill_(2.0);
    unshard(*net->first).wait();
    EXPECT_EQ(net->first->weight.sum().item<float>(), 2.0F * 64 * 3);
    reshard(*net);
  });
}

/// Of its two parameters one takes no part.
struct SpareImpl : torch::nn::Module {
  SpareImpl() {
    used = register_parameter("used", torch::ones({4, 4}));
    spare = register_parameter("spare", torch::ones({4, 4}));
  }
  torch::Tensor forward(torch::Tensor x) {
    seen = spare.detach().clone().to(torch::kFloat);
    return x * used.mean();
  }
  torch::Tensor used, spare;  // [4, 4]
  torch::Tensor seen;         // [4, 4]
};
TORCH_MODULE(Spare);

TEST(InPlaceCopies, OfAShardThatAdamWStepsInPartAreCastAgain) {
  on_ranks(2, [&](const DeviceMesh& mesh) {
    Unit<Spare> net;
    fully_shard(net, mesh, with_copies());
    AdamW optimizer(net, {.lr = 0.1});
    for (int step = 0; step < 3; ++step) {
      net(input()).sum().backward();
      for (const LocalParameter& local : local_parameters(*net)) {
        if (local.name == "spare") {
          const torch::NoGradGuard no_grad;
          local.piece.fill_(step);
          local.parameter.mutable_grad() = torch::Tensor();
        }
      }
      optimizer.step();
      net(input()).sum().backward();
      EXPECT_TRUE(torch::equal(net->seen, torch::full({4, 4}, 1.0 * step)));
    }
  });
}

// ---- Errors ----------------------------------------------------------------

TEST(InPlaceErrors, ALateReaderIsNamed) {
  Signal told;
  on_ranks(
      2,
      [&](const DeviceMesh& mesh) {
        Net net;
        fully_shard(net, mesh);
        train(net);
        train(net);
        net(input());
        if (mesh.rank() == 0) {
          const std::string message =
              message_of<CommError>([&] { settle(*net); });
          EXPECT_NE(message.find("'second'"), std::string::npos) << message;
          EXPECT_NE(message.find("to finish reading"), std::string::npos)
              << message;
          told.set();
        }
        while (!told.wait_a_while()) {
        }
      },
      std::chrono::seconds(2));
}

TEST(InPlaceErrors, NobodyWaitsForAUnitThatIsGone) {
  Signal gone;
  on_ranks(2, [&](const DeviceMesh& mesh) {
    std::optional<Net> net(std::in_place);
    fully_shard(*net, mesh);
    train(*net);
    train(*net);
    (*net)(input());
    if (mesh.rank() == 1) {
      net.reset();
      gone.set();
    } else {
      while (!gone.wait_a_while()) {
      }
      settle(**net);
    }
  });
}

TEST(InPlaceErrors, PassThatFailsOnEveryRankIsDroppedAndTheNextIsRight) {
  std::vector<float> means(2);
  on_ranks(2, [&](const DeviceMesh& mesh) {
    Net net;
    fully_shard(net, mesh);
    train(net);
    for (int pass = 0; pass < 2; ++pass) {
      net->second->in_forward = true;
      net->second->pause = [] { throw std::runtime_error("out of data"); };
      EXPECT_EQ(message_of<std::runtime_error>([&] { net(input()); }),
                "out of data");
      net->second->in_forward = false;
      train(net);
    }
    const torch::NoGradGuard no_grad;
    means[static_cast<std::size_t>(mesh.rank())] =
        net(input()).mean().item<float>();
  });
  EXPECT_EQ(means[0], 4.0F);
  EXPECT_EQ(means[1], 4.0F);
}

}  // namespace
}  // namespace accordion
