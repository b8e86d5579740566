// SPDX-License-Identifier: BSD-3-Clause
// Units without activations: what differs from units that keep them, and what
// does not.
#include <torch/optim/sgd.h>

#include "accordion/fsdp/controls.h"
#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/fsdp/step_trace.h"
#include "accordion/module/activation_checkpoint.h"
#include "tests/fsdp/logging_communicator.h"
#include "tests/fsdp/models.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using Net = Unit<testing::UnitNet>;

/// What a run of rank 0 did.
struct Record {
  std::vector<std::string> collectives;
  std::vector<float> losses;
  std::string schedule;
};

Record train(int world, FsdpOptions options, bool checkpointed) {
  if (checkpointed) {
    options.activation_checkpointing = ActivationCheckpointing();
  }
  Record run;
  testing::on_ranks(world, [&](const DeviceMesh& threads) {
    const auto logging = std::make_shared<testing::LoggingCommunicator>(
        std::shared_ptr<Communicator>(std::make_shared<DeviceMesh>(threads),
                                      &threads.world()));
    auto net = testing::seeded<Net>();
    fully_shard(net, DeviceMesh::over(logging), options);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    for (int step = 0; step < 4; ++step) {
      net->zero_grad();
      const auto loss = testing::loss_of(
          net(testing::rows_of(testing::batch_of(step, 4 * world),
                               threads.rank(), world)),
          testing::rows_of(testing::target_of(step, 4 * world), threads.rank(),
                           world));
      loss.backward();
      sgd.step();
      if (threads.rank() == 0) {
        run.losses.push_back(loss.item<float>());
      }
    }
    if (threads.rank() == 0) {
      run.collectives = logging->log;
      run.schedule = to_table(step_schedule(*net));
    }
  });
  return run;
}

TEST(ActivationCheckpointing, OneGatherServesRecomputationAndGradients) {
  for (const int world : {1, 2, 3}) {
    for (const auto strategy : {Strategy::FullShard, Strategy::ShardGradOp,
                                Strategy::ShardOptimizer, Strategy::NoShard}) {
      FsdpOptions options;
      options.strategy = strategy;
      const Record plain = train(world, options, false);
      const Record checkpointed = train(world, options, true);
      EXPECT_EQ(checkpointed.collectives, plain.collectives);
      EXPECT_EQ(checkpointed.schedule, plain.schedule);
      EXPECT_EQ(checkpointed.losses, plain.losses);  // bit for bit
    }
  }
}

TEST(ActivationCheckpointing, LossesInLowerPrecisionAreTheSameToo) {
  FsdpOptions options;
  options.precision.param_dtype = torch::kBFloat16;
  options.precision.reduce_dtype = torch::kFloat32;
  EXPECT_EQ(train(2, options, true).losses, train(2, options, false).losses);
}

/// Reads a vector of the module around it.
struct InnerImpl : torch::nn::Module {
  explicit InnerImpl(const torch::Tensor& gain)
      : gain(register_parameter("gain", gain)) {}
  torch::Tensor forward(const torch::Tensor& x) { return (x * gain).sin(); }
  torch::Tensor gain;
};
TORCH_MODULE(Inner);

/// Checkpoints a unit, as an option or by hand, and a call of its own.
template <class InnerHolder>
struct OuterImpl : torch::nn::Module {
  explicit OuterImpl(bool by_hand) : by_hand(by_hand) {
    gain = register_parameter("gain", torch::linspace(0.5, 1.5, 5));
    inner = register_module("inner", InnerHolder(gain));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    if (!by_hand) {
      return inner(x * gain) * gain;
    }
    const auto y = checkpoint(
        [this](const torch::Tensor& x) { return inner(x); }, x * gain);
    return checkpoint(
               [this](const torch::Tensor& y) { return (y * gain).exp(); }, y) *
           gain;
  }
  bool by_hand;
  torch::Tensor gain;
  InnerHolder inner{nullptr};
};
struct PlainOuter : torch::nn::ModuleHolder<OuterImpl<Inner>> {
  using ModuleHolder::ModuleHolder;
};
struct UnitOuter : torch::nn::ModuleHolder<OuterImpl<Unit<Inner>>> {
  using ModuleHolder::ModuleHolder;
};

// The graph outside of a checkpointed call does not show which parameters the
// call reads: their unit must not end its backward before.
TEST(ActivationCheckpointing, CallsThatReadParametersOfTheUnitAroundThem) {
  for (const bool by_hand : {false, true}) {
    PlainOuter plain(by_hand);
    const auto x = torch::linspace(-1, 1, 5);
    plain(x).sum().backward();
    testing::on_ranks(2, [&](const DeviceMesh& mesh) {
      Unit<UnitOuter> net(by_hand);
      FsdpOptions options;
      if (!by_hand) {
        options.activation_checkpointing = ActivationCheckpointing();
      }
      fully_shard(net, mesh, options);
      for (int step = 0; step < 3; ++step) {
        net->zero_grad();
        net(x).sum().backward();
        EXPECT_TRUE(
            torch::allclose(full_gradient(*net, "gain"), plain->gain.grad()))
            << "by hand: " << by_hand << ", step " << step;
      }
    });
  }
}

TEST(ActivationCheckpointing, ChoosesUnitsAndEveryNthOfThem) {
  testing::on_ranks(2, [](const DeviceMesh& mesh) {
    auto net = testing::seeded<Net>();
    FsdpOptions options;
    options.activation_checkpointing = ActivationCheckpointing{
        .units = wrap_if(
            "not block0",
            [](const WrapQuery& query) { return query.name != "block0"; }),
        .every = 2};
    fully_shard(net, mesh, options);
    const auto trace = std::make_shared<StepTrace>();
    set_step_trace(*net, trace);
    trace->begin_step();
    net(testing::batch_of(0, 4)).sum().backward();
    std::vector<int> recomputed;
    for (const Span& span : trace->spans()) {
      if (span.kind == SpanKind::Recompute) {
        recomputed.push_back(span.unit);
      }
    }
    EXPECT_EQ(recomputed, std::vector<int>{3});  // block2; the root is 0
  });
}

TEST(ActivationCheckpointing, EveryBelowOneIsAnError) {
  testing::on_ranks(1, [](const DeviceMesh& mesh) {
    auto net = testing::seeded<Net>();
    FsdpOptions options;
    options.activation_checkpointing = ActivationCheckpointing{.every = 0};
    EXPECT_THROW(fully_shard(net, mesh, options), c10::ValueError);
  });
}

}  // namespace
}  // namespace accordion
