// SPDX-License-Identifier: BSD-3-Clause
// Gradients and parameters that are not in memory: the same numbers, in other
// places.
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <torch/optim/sgd.h>

#include "accordion/fsdp/controls.h"
#include "accordion/fsdp/full_parameters.h"
#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/offload/offload_target.h"
#include "accordion/optim/adamw.h"
#include "accordion/optim/clip_grad_norm.h"
#include "accordion/optim/grad_scaler.h"
#include "accordion/optim/step_in_backward.h"
#include "tests/fsdp/odd_net.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion {
namespace {

using testing::class_loss;
using testing::classes_of;
using ::testing::HasSubstr;
using testing::message_of;
using testing::on_meshes;
using testing::on_ranks;
using testing::rows_of;
using testing::seeded;
using testing::tokens_of;

constexpr int kRows = 48;
constexpr int kWide = 61;

/// Layers whose shards have several blocks.
struct WideLayerImpl : torch::nn::Module {
  WideLayerImpl()
      : up(register_module("up", torch::nn::Linear(kWide, 2 * kWide))),
        down(register_module("down", torch::nn::Linear(2 * kWide, kWide))) {}
  torch::Tensor forward(torch::Tensor x) {
    return x + down(torch::tanh(up(x)));
  }
  torch::nn::Linear up, down;
};
TORCH_MODULE(WideLayer);

struct WideNetImpl : torch::nn::Module {
  WideNetImpl() {
    embed = register_module("embed",
                            torch::nn::Embedding(testing::kVocabulary, kWide));
    for (int i = 0; i < 4; ++i) {
      layers.push_back(
          register_module("layer" + std::to_string(i), Unit<WideLayer>()));
    }
    head =
        register_module("head", torch::nn::Linear(kWide, testing::kVocabulary));
  }
  torch::Tensor forward(torch::Tensor tokens) {
    auto x = embed(tokens).mean(1);
    for (auto& layer : layers) {
      x = layer(x);
    }
    return head(x);
  }
  torch::nn::Embedding embed{nullptr};
  std::vector<Unit<WideLayer>> layers;
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(WideNet);

enum class Place { Host, Nvme };

OffloadTarget target_of(Place place, HostPool& pool, int buffers = 3) {
  OffloadTarget target =
      place == Place::Host
          ? offload_to_host(pool)
          : offload_to_nvme(std::filesystem::temp_directory_path());
  target.block_bytes = kOffloadAlignment;  // so that shards have several
  target.buffers = buffers;
  target.share = 1;
  return target;
}

struct Case {
  std::vector<MeshAxis> axes = {{"shard", 2}};
  Place place = Place::Host;
  bool gradients = true;
  bool parameters = true;
  bool moments = false;
  int buffers = 3;
  int microbatches = 1;
  FsdpOptions options = {};  // of both nets
  double max_norm = 0.5;
};

template <class Net>
void backward(const DeviceMesh& mesh, Net& net, int step, int microbatches,
              double scale = 1.0) {
  for (int i = 0; i < microbatches; ++i) {
    set_is_last_backward(*net, i + 1 == microbatches);
    const int batch = step * microbatches + i;
    (class_loss(
         net(rows_of(tokens_of(batch, kRows), mesh.rank(), mesh.world_size())),
         rows_of(classes_of(batch, kRows), mesh.rank(), mesh.world_size())) *
     scale)
        .backward();
  }
}

/// Bit for bit: what is no number too.
bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return torch::equal(a.view(torch::kInt), b.view(torch::kInt));
}

template <class Net>
void expect_same(Net& got, Net& want, const std::string& what) {
  const auto expected = local_parameters(*want);
  const auto pieces = local_parameters(*got);
  ASSERT_EQ(pieces.size(), expected.size());
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const std::string where = pieces[i].name + ", " + what;
    EXPECT_TRUE(same_bits(pieces[i].piece, expected[i].piece)) << where;
    ASSERT_EQ(pieces[i].gradient.defined(), expected[i].gradient.defined())
        << where;
    if (expected[i].gradient.defined()) {
      EXPECT_TRUE(same_bits(pieces[i].gradient, expected[i].gradient)) << where;
    }
  }
}

/// Runs both nets side by side; `step(net, optimizer)` is what comes after a
/// backward, and returns a number that has to be the same.
template <class Net, class Step>
void expect_same_as_in_memory(const Case& c, const Step& step) {
  int world = 1;
  for (const MeshAxis& axis : c.axes) {
    world *= axis.size;
  }
  HostPool pool(1 << 24);  // outlives the nets
  std::vector<Net> nets;
  for (int i = 0; i < 2 * world; ++i) {
    nets.push_back(seeded<Net>());
  }
  on_meshes(
      make_local_meshes(c.axes, std::chrono::seconds(60)),
      [&](const DeviceMesh& mesh) {
        auto& resident = nets[static_cast<std::size_t>(mesh.rank())];
        auto& paged = nets[static_cast<std::size_t>(mesh.rank() + world)];
        FsdpOptions options = c.options;
        fully_shard(resident, mesh, options);
        options.offload =
            OffloadPolicy{.to = target_of(c.place, pool, c.buffers),
                          .gradients = c.gradients,
                          .parameters = c.parameters};
        fully_shard(paged, mesh, options);
        AdamWOptions adamw{.lr = 1e-2, .weight_decay = 0.1};
        AdamW in_memory(resident, adamw);
        if (c.moments) {
          adamw.offload = target_of(c.place, pool);
        }
        AdamW optimizer(paged, adamw);
        expect_same(paged, resident, "at first");
        for (int i = 0; i < 5; ++i) {
          in_memory.zero_grad();
          optimizer.zero_grad();
          backward(mesh, resident, i, c.microbatches);
          backward(mesh, paged, i, c.microbatches);
          if (i != 2) {  // where somebody looks at it in between, and where not
            expect_same(paged, resident, "gradients of " + std::to_string(i));
          }
          EXPECT_EQ(step(paged, optimizer), step(resident, in_memory));
          if (i != 3) {
            expect_same(paged, resident, "step " + std::to_string(i));
          }
        }
        const auto pages = offloaded_shards(*paged);
        const OffloadCounters counters = pages->blocks().counters();
        EXPECT_GT(counters.bytes_read, 0);
        EXPECT_GT(counters.bytes_written, 0);
        EXPECT_EQ(offloaded_shards(*resident), nullptr);
        EXPECT_EQ(sharded_bytes(*paged).offload_buffers,
                  c.buffers * kOffloadAlignment);
      });
}

/// The usual step: clipped by the norm that the reductions took.
template <class Net>
void expect_same_as_in_memory(const Case& c) {
  expect_same_as_in_memory<Net>(c, [&](Net& net, AdamW& optimizer) {
    const double norm = reduced_grad_norm(*net);
    optimizer.step(clip_coefficient(norm, c.max_norm));
    return norm;
  });
}

using OddNet = Unit<testing::UnitOddNet>;
using Wide = Unit<WideNet>;

TEST(ShardOffload, IsBitForBitAsInMemory) {
  for (const Place place : {Place::Host, Place::Nvme}) {
    for (const int world : {1, 2, 3, 4}) {
      for (const bool parameters : {false, true}) {
        SCOPED_TRACE(std::to_string(world) + " ranks");
        const Case c{.axes = {{"shard", world}},
                     .place = place,
                     .parameters = parameters};
        expect_same_as_in_memory<OddNet>(c);
        expect_same_as_in_memory<Wide>(c);
      }
    }
  }
}

TEST(ShardOffload, IsTheSameWithEveryStrategy) {
  for (const Strategy strategy :
       {Strategy::FullShard, Strategy::ShardGradOp, Strategy::ShardOptimizer,
        Strategy::NoShard}) {
    for (const int microbatches : {1, 3}) {
      SCOPED_TRACE(static_cast<int>(strategy));
      Case c{.place = Place::Nvme, .microbatches = microbatches};
      c.options.strategy = strategy;
      expect_same_as_in_memory<Wide>(c);
      c.axes = {{"replicate", 2}, {"shard", 2}};
      expect_same_as_in_memory<OddNet>(c);
    }
  }
}

TEST(ShardOffload, AddsGradientsUpAsInMemory) {
  for (const Accumulation accumulation :
       {Accumulation::Sharded, Accumulation::Unsharded,
        Accumulation::DeferredAllReduce}) {
    for (const bool parameters : {false, true}) {
      SCOPED_TRACE(static_cast<int>(accumulation));
      Case c{.axes = {{"replicate", 2}, {"shard", 2}},
             .parameters = parameters,
             .microbatches = 3};
      c.options.accumulation = accumulation;
      expect_same_as_in_memory<Wide>(c);
      expect_same_as_in_memory<OddNet>(c);
    }
  }
}

TEST(ShardOffload, IsTheSameWithOtherOptions) {
  Case c{.place = Place::Nvme, .moments = true};
  expect_same_as_in_memory<Wide>(c);
  c.options.activation_checkpointing = ActivationCheckpointing();
  expect_same_as_in_memory<Wide>(c);
  c.options.precision = {.param_dtype = torch::kBFloat16};
  expect_same_as_in_memory<Wide>(c);
  c.axes = {{"shard", 1}};
  expect_same_as_in_memory<Wide>(c);
  c.axes = {{"shard", 4}};
  c.options.reshard_to_ranks = 2;
  expect_same_as_in_memory<Wide>(c);
  c = {.place = Place::Nvme};
  c.options.min_shard_numel = 50;  // some stay whole, and in memory
  expect_same_as_in_memory<OddNet>(c);
  c.options.prefetch = 0;
  expect_same_as_in_memory<Wide>(c);
  c.options.static_graph = false;
  expect_same_as_in_memory<Wide>(c);
}

TEST(ShardOffload, NeedsTwoBuffersAndTakesMore) {
  for (const int buffers : {2, 5, 64}) {
    SCOPED_TRACE(std::to_string(buffers) + " buffers");
    expect_same_as_in_memory<Wide>({.place = Place::Nvme, .buffers = buffers});
  }
}

TEST(ShardOffload, ParametersMayBeSteppedInBackward) {
  for (const int world : {1, 2, 3}) {
    HostPool pool(1 << 24);
    std::vector<Wide> nets;
    for (int i = 0; i < 2 * world; ++i) {
      nets.push_back(seeded<Wide>());
    }
    on_ranks(world, [&](const DeviceMesh& mesh) {
      auto& resident = nets[static_cast<std::size_t>(mesh.rank())];
      auto& paged = nets[static_cast<std::size_t>(mesh.rank() + world)];
      fully_shard(resident, mesh, {.step_in_backward = true});
      fully_shard(paged, mesh,
                  {.step_in_backward = true,
                   .offload = OffloadPolicy{.to = target_of(Place::Nvme, pool),
                                            .gradients = false,
                                            .parameters = true}});
      AdamWOptions options{.lr = 1e-2};
      AdamW in_memory(resident, options);
      options.offload = target_of(Place::Nvme, pool);
      AdamW optimizer(paged, options);
      StepInBackward first(resident, in_memory, {.max_norm = 0.5});
      StepInBackward second(paged, optimizer, {.max_norm = 0.5});
      for (int step = 0; step < 4; ++step) {
        backward(mesh, resident, step, 1);
        backward(mesh, paged, step, 1);
        EXPECT_EQ(second.end_step().grad_norm, first.end_step().grad_norm);
        expect_same(paged, resident, "step " + std::to_string(step));
      }
    });
  }
}

TEST(ShardOffload, OtherOptimizersAndUsersWorkOnThePieces) {
  Case c{.place = Place::Nvme, .microbatches = 2};
  expect_same_as_in_memory<Wide>(c, [](Wide& net, AdamW& /*unused*/) {
    const double norm = clip_grad_norm_(*net, 0.5);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    optimizer.step();
    {
      const torch::NoGradGuard no_grad;
      net->head->bias.mul_(0.5);  // by its piece
      SummonFullParameters whole(net, {.with_gradients = true});
      net->layers[1]->up->weight.mul_(0.75);
    }
    return norm +
           full_parameter(*net, "layer1.up.weight").sum().item<double>() +
           full_gradient(*net, "layer2.down.weight").sum().item<double>();
  });
}

TEST(ShardOffload, EvaluationSeesWhatWasWritten) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    HostPool pool(1 << 24);
    auto net = seeded<Wide>();
    fully_shard(net, mesh,
                {.offload = OffloadPolicy{.to = target_of(Place::Nvme, pool),
                                          .parameters = true}});
    const torch::NoGradGuard no_grad;
    const auto tokens = tokens_of(0, 4);
    const auto before = net(tokens);
    EXPECT_TRUE(torch::equal(net(tokens), before));
    for (auto& parameter : net->parameters()) {
      parameter.zero_();
    }
    EXPECT_EQ(net(tokens).abs().sum().item<float>(), 0.0F);
  });
}

TEST(ShardOffload, AGradScalerSkipsAndStepsAsInMemory) {
  HostPool pool(1 << 24);
  std::vector<Wide> nets;
  for (int i = 0; i < 4; ++i) {
    nets.push_back(seeded<Wide>());
  }
  on_ranks(2, [&](const DeviceMesh& mesh) {
    auto& resident = nets[static_cast<std::size_t>(mesh.rank())];
    auto& paged = nets[static_cast<std::size_t>(mesh.rank() + 2)];
    fully_shard(resident, mesh);
    fully_shard(paged, mesh,
                {.offload = OffloadPolicy{.to = target_of(Place::Host, pool),
                                          .parameters = true}});
    const AdamWOptions options{.lr = 1e-2};
    AdamW in_memory(resident, options);
    AdamW optimizer(paged, options);
    GradScaler first(resident, {.init_scale = 1024});
    GradScaler second(paged, {.init_scale = 1024});
    for (int step = 0; step < 4; ++step) {
      const double scale = 1024 * (step == 1 ? 1e38 : 1.0);  // overflows once
      const auto take = [&](Wide& net, AdamW& adamw, GradScaler& scaler) {
        adamw.zero_grad();
        backward(mesh, net, step, 2, scale);
        if (step == 3) {
          scaler.unscale_();
        }
        const bool stepped = scaler.step(adamw);
        scaler.update();
        return stepped;
      };
      EXPECT_EQ(take(resident, in_memory, first),
                take(paged, optimizer, second));
      expect_same(paged, resident, "step " + std::to_string(step));
    }
    EXPECT_EQ(first.state().skipped_steps, 1);
    EXPECT_EQ(second.state().skipped_steps, 1);
  });
}

TEST(ShardOffload, ParametersThatThawHaveTheirGradientsOffloadedToo) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    HostPool pool(1 << 24);
    auto net = seeded<Wide>();
    const auto set_trainable = [&](bool trainable) {
      for (auto& parameter : net->layers[0]->parameters()) {
        parameter.set_requires_grad(trainable);
      }
    };
    set_trainable(false);
    fully_shard(net, mesh,
                {.offload = OffloadPolicy{.to = target_of(Place::Host, pool)}});
    AdamW optimizer(net, {});
    const std::int64_t before = pool.held_bytes();
    backward(mesh, net, 0, 1);
    optimizer.step();
    set_trainable(true);
    backward(mesh, net, 1, 1);
    optimizer.step();
    EXPECT_GT(pool.held_bytes(), before);
    EXPECT_EQ(optimizer.moments("layer0.up.weight")->steps, 1);
  });
}

// Of every shard and gradient, what a step needs and nothing more.
TEST(ShardOffload, CountsWhatItMoves) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    HostPool pool(1 << 24);
    auto net = seeded<Wide>();
    fully_shard(net, mesh,
                {.offload = OffloadPolicy{.to = target_of(Place::Host, pool, 2),
                                          .parameters = true}});
    AdamW optimizer(net, {});
    std::int64_t bytes = 0;  // of all shards, in whole blocks
    std::int64_t twice = 0;  // of those gathered again for backward
    for (const FlatShard& shard : flat_shards(*net)) {
      const auto of_shard = static_cast<std::int64_t>(offload_aligned(
          static_cast<std::int64_t>(shard.parameters.nbytes())));
      bytes += of_shard;
      twice += shard.unit.empty() || shard.unit == "layer3" ? 0 : of_shard;
    }
    EXPECT_EQ(pool.held_bytes(), 2 * bytes);
    EXPECT_EQ(sharded_bytes(*net).parameters, 2 * kOffloadAlignment);
    EXPECT_EQ(sharded_bytes(*net).offload_buffers, 2 * kOffloadAlignment);
    OffloadCounters before;
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      before = offloaded_shards(*net)->blocks().counters();
      backward(mesh, net, step, 1);
      optimizer.step();
    }
    OffloadCounters step = offloaded_shards(*net)->blocks().counters();
    step -= before;
    // Gradients once, and parameters once by the optimizer.
    EXPECT_EQ(step.bytes_written, 2 * bytes);
    EXPECT_LE(step.bytes_read, bytes + twice + 2 * bytes);
    EXPECT_GE(step.bytes_read, bytes + twice + 2 * bytes - 8 * 4096);
  });
}

TEST(ShardOffload, ShardsAreReadAheadInTheOrderOfTheSchedule) {
  on_ranks(1, [](const DeviceMesh& mesh) {
    HostPool pool(1 << 24);
    auto net = seeded<Wide>();
    fully_shard(
        net, mesh,
        {.offload = OffloadPolicy{.to = target_of(Place::Host, pool, 64),
                                  .gradients = false,
                                  .parameters = true}});
    backward(mesh, net, 0, 1);  // recorded
    const OffloadCounters before = offloaded_shards(*net)->blocks().counters();
    backward(mesh, net, 1, 1);
    OffloadCounters pass = offloaded_shards(*net)->blocks().counters();
    pass -= before;
    EXPECT_GT(pass.reads, 60);
    EXPECT_EQ(pass.reads_in_time, pass.reads);
  });
}

TEST(ShardOffload, MistakesAreNamed) {
  on_ranks(1, [](const DeviceMesh& mesh) {
    HostPool pool(1 << 24);
    HostPool small(8192);
    const auto error_with = [&](const auto& change) {
      auto net = seeded<Wide>();
      FsdpOptions options;
      options.offload = OffloadPolicy{.to = target_of(Place::Host, pool)};
      change(options);
      return message_of<std::exception>(
          [&] { fully_shard(net, mesh, options); });
    };
    EXPECT_THAT(error_with([](FsdpOptions& o) { o.step_in_backward = true; }),
                HasSubstr("no gradient stays that could be offloaded"));
    EXPECT_THAT(
        error_with([](FsdpOptions& o) { o.offload->gradients = false; }),
        HasSubstr("names neither gradients nor parameters"));
    EXPECT_THAT(error_with([](FsdpOptions& o) { o.offload->to.buffers = 1; }),
                HasSubstr("[fully_shard] offload.buffers is 1"));
    EXPECT_THAT(error_with([](FsdpOptions& o) {
                  o.offload->to.make_store =
                      offload_to_nvme("/no/such").make_store;
                }),
                HasSubstr("/no/such"));
    EXPECT_THAT(error_with([&](FsdpOptions& o) {
                  o.offload->to.make_store = offload_to_host(small).make_store;
                }),
                HasSubstr("raise the limit of the pool"));
  });
}

}  // namespace
}  // namespace accordion
