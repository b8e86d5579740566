// SPDX-License-Identifier: BSD-3-Clause
//
// When a copy in the dtype of computation is cast anew: FsdpOptions::
// copies_in_place.
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
using testing::on_ranks;
using testing::piece_named;
using testing::train_chain;

FsdpOptions with_copies() {
  return {.precision = {.param_dtype = torch::kBFloat16},
          .copies_in_place = true};
}

/// What the first unit computes with in a pass, of this rank's half.
torch::Tensor seen_in_pass(ChainNet& net, int rank) {
  net->first->in_forward = true;
  train_chain(net);
  net->first->in_forward = false;
  const torch::Tensor seen = net->first->seen.flatten().to(torch::kFloat);
  return seen.narrow(0, rank * seen.numel() / 2, seen.numel() / 2);
}

// What nothing but AdamW wrote is not cast again, and all else is.
TEST(InPlaceCopies, AreThoseOfAdamWUntilPiecesAreListed) {
  on_ranks(2, [&](const DeviceMesh& mesh) {
    const int rank = mesh.rank();
    ChainNet net;
    fully_shard(net, mesh, with_copies());
    AdamW optimizer(net, {.lr = 0.25, .eps = 0.0, .weight_decay = 0.0});
    const torch::NoGradGuard no_grad;
    const torch::Tensor piece = piece_named(net, "first.weight");
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
      net(chain_input()).sum().backward();
      for (const LocalParameter& local : local_parameters(*net)) {
        if (local.name == "spare") {
          const torch::NoGradGuard no_grad;
          local.piece.fill_(step);
          local.parameter.mutable_grad() = torch::Tensor();
        }
      }
      optimizer.step();
      net(chain_input()).sum().backward();
      EXPECT_TRUE(torch::equal(net->seen, torch::full({4, 4}, 1.0 * step)));
    }
  });
}

}  // namespace
}  // namespace accordion
