// SPDX-License-Identifier: BSD-3-Clause
//
// That no rank writes to its shard while a peer reads it where it lies
// ([Note: gathers in place]).
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "accordion/comm/communicator.h"
#include "accordion/fsdp/controls.h"
#include "accordion/fsdp/full_parameters.h"
#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/optim/adamw.h"
#include "tests/fsdp/rank_threads.h"
#include "tests/fsdp/watched_chain.h"

namespace accordion {
namespace {

using testing::chain_input;
using testing::ChainNet;
using testing::message_of;
using testing::on_ranks;
using testing::piece_named;
using testing::Signal;
using testing::train_chain;
using testing::WatchedImpl;

/// What both ranks do, in the middle of which rank 1 reads and after which rank
/// 0 writes.
using Reading = std::function<void(ChainNet&)>;

/// Where a unit is watched: its name, and how to get at it.
struct Watch {
  const char* unit = "first";
  bool in_backward = false;

  [[nodiscard]] WatchedImpl& of(ChainNet& net) const {
    return std::string(unit) == "first" ? *net->first : *net->second;
  }
};

/// Rank 1 reads for as long as rank 0 does not write, or for a while; rank 0
/// writes as soon as it comes to it.
void expect_write_waits(
    const FsdpOptions& options, const Watch& watch, const Reading& prepare,
    const Reading& read,
    const std::function<void(ChainNet&, const torch::Tensor& piece)>& write =
        [](ChainNet&, const torch::Tensor& piece) { piece.fill_(7.0); }) {
  Signal written;
  on_ranks(2, [&](const DeviceMesh& mesh) {
    ChainNet net;
    fully_shard(net, mesh, options);
    WatchedImpl& watched = watch.of(net);
    const torch::Tensor piece =
        piece_named(net, std::string(watch.unit) + ".weight");
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

void nothing(ChainNet&) {}

TEST(InPlaceWrites, WaitForTheEndOfAnEvaluation) {
  expect_write_waits({}, {.unit = "second"}, nothing, [](ChainNet& net) {
    const torch::NoGradGuard no_grad;
    net(chain_input());
  });
}

TEST(InPlaceWrites, WaitForTheEndOfAForward) {
  // Rank 0 needs nothing of rank 1 after what that gathers ahead.
  const auto prepare = [](ChainNet& net) {
    train_chain(net);
    set_forward_prefetch(*net->first, {net->second.get()});
    train_chain(net);
  };
  expect_write_waits({.prefetch = 0}, {}, prepare,
                     [](ChainNet& net) { net(chain_input()); });
}

TEST(InPlaceWrites, WaitWhereNoBackwardFollows) {
  const auto prepare = [](ChainNet& net) {
    train_chain(net);
    train_chain(net);
  };
  expect_write_waits({}, {.unit = "second"}, prepare, [](ChainNet& net) {
    net(chain_input());
    settle(*net);
  });
}

/// Nothing is reduced that would order what ranks read and write.
void freeze_first(ChainNet& net) {
  net->first->weight.set_requires_grad(false);
  train_chain(net);
  train_chain(net);
}

TEST(InPlaceWrites, WaitForBackwardOfAFrozenUnit) {
  expect_write_waits({}, {.in_backward = true}, freeze_first,
                     [](ChainNet& net) { train_chain(net); });
}

TEST(InPlaceWrites, WaitForBackwardOfOneThatStaysWhole) {
  FsdpOptions options;
  options.keep_parameters_across_microbatches = true;
  const auto prepare = [](ChainNet& net) {
    net->first->weight.set_requires_grad(false);
    for (const bool is_last : {false, true, false, true}) {
      train_chain(net, is_last);
    }
  };
  expect_write_waits(
      options, {.in_backward = true}, prepare,
      [](ChainNet& net) { train_chain(net, /*is_last=*/false); });
}

TEST(InPlaceWrites, WaitForReshardByHand) {
  const auto prepare = [](ChainNet& net) {
    set_reshard_after_forward(*net, false);
  };
  expect_write_waits({}, {.unit = "second"}, prepare, [](ChainNet& net) {
    const torch::NoGradGuard no_grad;
    net(chain_input());
    reshard(*net);
  });
}

TEST(InPlaceWrites, OfWhatIsAssignedWithinAPassWaitForItsReaders) {
  const auto prepare = [](ChainNet& net) {
    net->between = [] {};
    train_chain(net);
    set_forward_prefetch(*net->first, {net->second.get()});
    train_chain(net);
  };
  const auto assign = [](ChainNet& net) {
    torch::Tensor& weight = net->first->weight;
    net->between = [&] { weight.set_data(torch::full_like(weight, 5.0)); };
    net(chain_input());
  };
  expect_write_waits({.prefetch = 0}, {}, prepare, assign,
                     [](ChainNet&, const torch::Tensor&) {});
}

TEST(InPlaceWrites, OfTheOptimizerWaitForAnEvaluationThatKeepsParameters) {
  std::vector<std::unique_ptr<AdamW>> optimizers(2);
  const auto prepare = [&](ChainNet& net) {
    const auto rank = static_cast<std::size_t>(shard_communicator(*net).rank());
    optimizers[rank] = std::make_unique<AdamW>(net, AdamWOptions{.lr = 0.1});
    train_chain(net);
    set_reshard_after_forward(*net, false);
  };
  expect_write_waits(
      {}, {.unit = "second"}, prepare,
      [](ChainNet& net) {
        const torch::NoGradGuard no_grad;
        net(chain_input());
      },
      [&](ChainNet&, const torch::Tensor&) { optimizers[0]->step(); });
}

// Whole parameters show what peers wrote, and without a gather nothing else
// says when that is done.
TEST(InPlaceWrites, BetweenPassesAreSeenByTheNext) {
  Signal read;
  on_ranks(2, [&](const DeviceMesh& mesh) {
    ChainNet net;
    FsdpOptions options;
    options.keep_parameters_across_microbatches = true;
    fully_shard(net, mesh, options);
    const torch::Tensor piece = piece_named(net, "first.weight");
    for (const bool is_last : {false, false, true, false}) {
      train_chain(net, is_last);
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
    train_chain(net, /*is_last=*/false);
    EXPECT_EQ(first.seen[0][0].item<float>(), 7.0F);
    EXPECT_EQ(mesh.world().counters().calls_of(CommOp::Barrier), meetings + 2)
        << "before and after";
    EXPECT_EQ(mesh.world().counters().calls_of(CommOp::AllGather), gathers);
  });
}

// ---- Errors ----------------------------------------------------------------

TEST(InPlaceErrors, ALateReaderIsNamed) {
  Signal told;
  on_ranks(
      2,
      [&](const DeviceMesh& mesh) {
        ChainNet net;
        fully_shard(net, mesh);
        train_chain(net);
        train_chain(net);
        net(chain_input());
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
    std::optional<ChainNet> net(std::in_place);
    fully_shard(*net, mesh);
    train_chain(*net);
    train_chain(*net);
    (*net)(chain_input());
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
    ChainNet net;
    fully_shard(net, mesh);
    train_chain(net);
    for (int pass = 0; pass < 2; ++pass) {
      net->second->in_forward = true;
      net->second->pause = [] { throw std::runtime_error("out of data"); };
      EXPECT_EQ(message_of<std::runtime_error>([&] { net(chain_input()); }),
                "out of data");
      net->second->in_forward = false;
      train_chain(net);
    }
    const torch::NoGradGuard no_grad;
    means[static_cast<std::size_t>(mesh.rank())] =
        net(chain_input()).mean().item<float>();
  });
  EXPECT_EQ(means[0], 4.0F);
  EXPECT_EQ(means[1], 4.0F);
}

}  // namespace
}  // namespace accordion
