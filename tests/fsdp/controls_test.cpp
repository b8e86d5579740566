// SPDX-License-Identifier: BSD-3-Clause
// What a user may change between passes.
#include "accordion/fsdp/controls.h"

#include <algorithm>

#include <torch/optim/sgd.h>

#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "tests/fsdp/logging_communicator.h"
#include "tests/fsdp/models.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using testing::batch_of;
using testing::message_of;
using testing::seeded;

using Net = Unit<testing::UnitNet>;

void backward(Net& net, int step) {
  net(batch_of(step, 4)).square().mean().backward();
}

/// A net sharded over two threads, and what rank 0 communicates.
void on_two(
    const FsdpOptions& options,
    const std::function<void(Net&, testing::LoggingCommunicator&)>& body) {
  std::vector<Net> nets{seeded<Net>(), seeded<Net>()};
  testing::on_ranks(2, [&](const DeviceMesh& threads) {
    const auto logging = std::make_shared<testing::LoggingCommunicator>(
        std::shared_ptr<Communicator>(std::make_shared<DeviceMesh>(threads),
                                      &threads.world()));
    Net& net = nets[static_cast<std::size_t>(threads.rank())];
    fully_shard(net, DeviceMesh::over(logging), options);
    logging->log.clear();
    body(net, *logging);
  });
}

std::int64_t count(const testing::LoggingCommunicator& logging,
                   const std::string& entry) {
  return std::count(logging.log.begin(), logging.log.end(), entry);
}

std::int64_t position(const testing::LoggingCommunicator& logging,
                      const std::string& entry) {
  return std::find(logging.log.begin(), logging.log.end(), entry) -
         logging.log.begin();
}

TEST(Controls, NoSyncAddsUpWithoutCommunication) {
  on_two({}, [](Net& net, auto& logging) {
    backward(net, 0);
    backward(net, 1);
    const auto expected = full_gradient(*net, "block1.up.weight");
    net->zero_grad();
    logging.log.clear();
    {
      const NoSync no_sync(*net);
      backward(net, 0);
      EXPECT_FALSE(net->blocks[1]->up->weight.grad().defined());
    }
    EXPECT_EQ(count(logging, "reduce block1"), 0);
    backward(net, 1);
    EXPECT_EQ(count(logging, "reduce block1"), 1);
    EXPECT_TRUE(torch::allclose(full_gradient(*net, "block1.up.weight"),
                                expected, 1e-6, 1e-8));
  });
}

TEST(Controls, GradientSyncOfOneUnitOnly) {
  on_two({}, [](Net& net, auto& logging) {
    backward(net, 0);
    logging.log.clear();
    set_requires_gradient_sync(*net->blocks[1], false);
    backward(net, 1);
    EXPECT_EQ(count(logging, "reduce block0"), 1);
    EXPECT_EQ(count(logging, "reduce block1"), 0);
    set_requires_gradient_sync(*net->blocks[1], true);
    backward(net, 2);
    EXPECT_EQ(count(logging, "reduce block1"), 1);
  });
}

TEST(Controls, DivideFactorReplacesTheNumberOfRanks) {
  on_two({}, [](Net& net, auto& /*logging*/) {
    backward(net, 0);
    const auto mean = full_gradient(*net, "head.weight");
    net->zero_grad();
    set_gradient_divide_factor(*net, 1.0);
    backward(net, 0);
    EXPECT_TRUE(torch::allclose(full_gradient(*net, "head.weight"), mean * 2));
    EXPECT_NE(message_of<c10::ValueError>([&] {
                set_gradient_divide_factor(*net, 0.0);
              }).find("the factor is 0"),
              std::string::npos);
  });
}

TEST(Controls, ReshardAfterForwardMayBeSwitched) {
  on_two({.prefetch = 0}, [](Net& net, auto& logging) {
    backward(net, 0);
    backward(net, 1);
    set_reshard_after_forward(*net->blocks[0], false);
    logging.log.clear();
    backward(net, 2);
    EXPECT_EQ(count(logging, "gather block0"), 1);
    EXPECT_EQ(count(logging, "gather block1"), 2);
    set_reshard_after_forward(*net->blocks[0], true);
    logging.log.clear();
    backward(net, 3);
    EXPECT_EQ(count(logging, "gather block0"), 2);
  });
}

TEST(Controls, ParametersMayStayWholeFromOneMicrobatchToTheNext) {
  on_two({}, [](Net& net, auto& logging) {
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    set_reshard_after_backward(*net, false);
    for (int step = 0; step < 2; ++step) {  // recorded, then replayed
      set_is_last_backward(*net, false);
      backward(net, 0);
      EXPECT_GT(sharded_bytes(*net).unsharded_parameters, 0);
      logging.log.clear();
      backward(net, 1);
      set_is_last_backward(*net, true);
      backward(net, 2);
      EXPECT_EQ(count(logging, "gather block1"), 0);
      EXPECT_EQ(sharded_bytes(*net).unsharded_parameters, 0)
          << "for the optimizer";
      optimizer.step();
      backward(net, 0);
      EXPECT_GE(count(logging, "gather block1"), 1) << "what it wrote";
    }
    {
      const NoSync no_sync(*net);
      backward(net, 0);
    }
    EXPECT_GT(sharded_bytes(*net).unsharded_parameters, 0);
    backward(net, 0);
    EXPECT_EQ(sharded_bytes(*net).unsharded_parameters, 0);
  });
}

std::int64_t numel_of(const torch::nn::Module& module) {
  std::int64_t numel = 0;
  for (const auto& parameter : module.parameters()) {
    numel += parameter.numel();
  }
  return numel;
}

TEST(Controls, OneUnitMayStayWholeAfterBackward) {
  on_two({}, [](Net& net, auto& /*logging*/) {
    set_reshard_after_backward(*net->blocks[1], false);
    set_is_last_backward(*net, false);
    for (int repeat = 0; repeat < 2; ++repeat) {
      backward(net, 0);
      EXPECT_EQ(numel_of(*net->blocks[1]), 2 * 91 + 20);
      EXPECT_LT(numel_of(*net->blocks[0]), 2 * 91 + 20);
    }
  });
}

TEST(Controls, EvaluationKeepsWholeParametersOnRequest) {
  on_two({}, [](Net& net, auto& logging) {
    const at::NoGradGuard no_grad;
    net(batch_of(0, 4));
    net(batch_of(0, 4));
    EXPECT_EQ(count(logging, "gather block1"), 2);
    logging.log.clear();
    set_reshard_after_forward(*net, false);
    const auto kept = net(batch_of(0, 4));
    EXPECT_TRUE(torch::equal(net(batch_of(0, 4)), kept));
    EXPECT_EQ(count(logging, "gather block1"), 1);
    EXPECT_GT(sharded_bytes(*net).unsharded_parameters, 0);
    reshard(*net);
    EXPECT_EQ(sharded_bytes(*net).unsharded_parameters, 0);
    set_reshard_after_forward(*net, true);
    net(batch_of(0, 4));
    EXPECT_EQ(sharded_bytes(*net).unsharded_parameters, 0);
  });
}

TEST(Controls, PassAfterKeptEvaluationGathersNothingAgain) {
  on_two({}, [](Net& net, auto& logging) {
    backward(net, 0);
    net->zero_grad();
    backward(net, 1);
    const auto expected = full_gradient(*net, "block1.up.weight");
    net->zero_grad();
    set_reshard_after_forward(*net, false);
    {
      const at::NoGradGuard no_grad;
      net(batch_of(0, 4));
    }
    logging.log.clear();
    backward(net, 1);
    EXPECT_EQ(count(logging, "gather block1"), 0);
    EXPECT_TRUE(
        torch::equal(full_gradient(*net, "block1.up.weight"), expected));
    EXPECT_EQ(sharded_bytes(*net).unsharded_parameters, 0);
  });
}

TEST(Controls, UnshardByHand) {
  on_two({}, [](Net& net, auto& logging) {
    auto& block = *net->blocks[1];
    auto handle = unshard(block);
    EXPECT_EQ(logging.log, std::vector<std::string>{"gather block1"});
    handle.wait();
    EXPECT_EQ(block.up->weight.sizes(),
              (c10::IntArrayRef{testing::kHidden, testing::kFeatures}));
    backward(net, 0);
    EXPECT_EQ(count(logging, "gather block1"), 2) << "again for backward only";
    reshard(block);
    EXPECT_EQ(sharded_bytes(*net).unsharded_parameters, 0);
  });
}

/// Calls reshard on a unit from inside its forward.
struct MeddlingImpl : torch::nn::Module {
  MeddlingImpl() {
    linear = register_module("linear", torch::nn::Linear(3, 3));
  }
  torch::Tensor forward(torch::Tensor x) {
    if (meddle) {
      reshard(*this);
    }
    return linear(x);
  }
  torch::nn::Linear linear{nullptr};
  bool meddle = false;
};
TORCH_MODULE(Meddling);

TEST(Controls, ReshardInsideForwardIsAnError) {
  Unit<Meddling> net;
  testing::on_ranks(1, [&](const DeviceMesh& mesh) {
    fully_shard(net, mesh);
    net->meddle = true;
    const auto message = message_of<c10::ValueError>([&] {
      net(torch::ones({2, 3}));
    });
    EXPECT_NE(message.find("is in its forward"), std::string::npos) << message;
  });
}

TEST(Controls, ExplicitPrefetchReplacesTheNextUnit) {
  on_two({.prefetch = 0}, [](Net& net, auto& logging) {
    backward(net, 0);
    set_forward_prefetch(*net->blocks[0],
                         {net->blocks[1].get(), net->blocks[2].get()});
    set_backward_prefetch(*net->blocks[2], {net->blocks[0].get()});
    logging.log.clear();
    backward(net, 1);
    EXPECT_LT(position(logging, "gather block2"),
              position(logging, "await gather block1"));
    EXPECT_EQ(validate(step_schedule(*net)), "");
    const auto& log = logging.log;
    const auto reduction = position(logging, "reduce block2");
    const auto last_gather_of_block0 =
        std::find(log.rbegin(), log.rend(), "gather block0").base() -
        log.begin();
    EXPECT_LE(last_gather_of_block0, reduction);
  });
}

TEST(Controls, SeveralRootsMayShareTheirSlots) {
  std::vector<Net> first{seeded<Net>(), seeded<Net>()};
  std::vector<Net> second{seeded<Net>(), seeded<Net>()};
  testing::on_ranks(2, [&](const DeviceMesh& mesh) {
    const auto rank = static_cast<std::size_t>(mesh.rank());
    fully_shard(first[rank], mesh, {.gather_in_place = false});
    const auto alone = sharded_bytes(*first[rank]);
    fully_shard(
        second[rank], mesh,
        {.gather_in_place = false, .share_slots_with = first[rank].get()});
    for (int step = 0; step < 3; ++step) {
      first[rank]->zero_grad();
      second[rank]->zero_grad();
      backward(first[rank], step);
      backward(second[rank], step);
    }
    EXPECT_EQ(sharded_bytes(*second[rank]).parameter_slots,
              alone.parameter_slots);
    EXPECT_TRUE(torch::equal(full_gradient(*first[rank], "block1.up.weight"),
                             full_gradient(*second[rank], "block1.up.weight")));
    // Both in one graph: they hold slots at the same time.
    first[rank]->zero_grad();
    (first[rank](batch_of(2, 4)) + second[rank](batch_of(2, 4)))
        .sum()
        .backward();
    EXPECT_GE(sharded_bytes(*second[rank]).parameter_slots,
              alone.parameter_slots);
    Net other = seeded<Net>();
    const auto message = message_of<c10::ValueError>([&] {
      fully_shard(other, mesh,
                  {.strategy = Strategy::NoShard,
                   .share_slots_with = first[rank].get()});
    });
    EXPECT_NE(message.find("share_slots_with names module"), std::string::npos)
        << message;
  });
}

TEST(Controls, ModulesThatAreNoUnitsAreNamed) {
  on_two({}, [](Net& net, auto& /*logging*/) {
    const auto message = message_of<c10::ValueError>(
        [&] { static_cast<void>(unshard(*net->head)); });
    EXPECT_NE(message.find("is no unit of a sharded module"), std::string::npos)
        << message;
    EXPECT_NE(message_of<c10::ValueError>([&] {
                set_requires_gradient_sync(*net->head, false);
              }).find("contains no unit"),
              std::string::npos);
  });
}

}  // namespace
}  // namespace accordion
