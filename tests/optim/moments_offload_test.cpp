// SPDX-License-Identifier: BSD-3-Clause
// Moments that are not in memory: the same numbers, in other places.
#include "accordion/offload/offload_target.h"

#include <filesystem>
#include <limits>

#include <gmock/gmock.h>

#include "accordion/fsdp/fully_shard.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/optim/adamw.h"
#include "accordion/optim/step_in_backward.h"
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

using OddNet = Unit<testing::UnitOddNet>;

constexpr int kRowsOfStep = 48;
/// Blocks so small that shards of the tests have several.
constexpr std::int64_t kBlockBytes = kOffloadAlignment;

void backward(const DeviceMesh& mesh, OddNet& net, int step) {
  class_loss(
      net(rows_of(tokens_of(step, kRowsOfStep), mesh.rank(),
                  mesh.world_size())),
      rows_of(classes_of(step, kRowsOfStep), mesh.rank(), mesh.world_size()))
      .backward();
}

enum class Place { Host, Nvme };

struct Case {
  Place place = Place::Host;
  int buffers = 8;
  AdamWOptions options = {.lr = 1e-2, .weight_decay = 0.1};
  bool in_backward = false;
};

OffloadTarget offload_of(const Case& c, HostPool& pool) {
  OffloadTarget offload =
      c.place == Place::Host
          ? offload_to_host(pool)
          : offload_to_nvme(std::filesystem::temp_directory_path());
  offload.block_bytes = kBlockBytes;
  offload.buffers = c.buffers;
  offload.share = 1;
  return offload;
}

void expect_same(AdamW& got, AdamW& want, const std::string& what) {
  const auto expected = local_parameters(want.root());
  const auto pieces = local_parameters(got.root());
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const std::string& name = pieces[i].name;
    EXPECT_TRUE(torch::equal(pieces[i].piece, expected[i].piece))
        << name << ", " << what;
    const auto moments = got.moments(name);
    const auto wanted = want.moments(name);
    ASSERT_EQ(moments.has_value(), wanted.has_value()) << name;
    if (wanted) {
      EXPECT_TRUE(torch::equal(moments->first, wanted->first)) << name;
      EXPECT_TRUE(torch::equal(moments->second, wanted->second)) << name;
      EXPECT_EQ(moments->steps, wanted->steps) << name;
    }
  }
}

void expect_same_as_in_memory(const Case& c, int world) {
  std::vector<OddNet> nets;
  for (int i = 0; i < 2 * world; ++i) {
    nets.push_back(seeded<OddNet>());
  }
  on_ranks(world, [&](const DeviceMesh& mesh) {
    auto& resident = nets[static_cast<std::size_t>(mesh.rank())];
    auto& paged = nets[static_cast<std::size_t>(mesh.rank() + world)];
    fully_shard(resident, mesh);
    fully_shard(paged, mesh, {.step_in_backward = c.in_backward});
    HostPool pool(1 << 20);
    AdamWOptions options = c.options;
    AdamW in_memory(resident, options);
    options.offload = offload_of(c, pool);
    AdamW optimizer(paged, options);
    std::unique_ptr<StepInBackward> stepper;
    if (c.in_backward) {
      stepper = std::make_unique<StepInBackward>(paged, optimizer,
                                                 StepInBackward::Options());
    }
    for (int step = 0; step < 5; ++step) {
      in_memory.zero_grad();
      backward(mesh, resident, step);
      in_memory.step();
      optimizer.zero_grad();
      backward(mesh, paged, step);
      if (!stepper) {
        optimizer.step();
      }
      if (step != 2) {  // where maps come between steps, and where not
        expect_same(optimizer, in_memory, "step " + std::to_string(step));
      }
    }
    EXPECT_EQ(optimizer.state_bytes(), in_memory.state_bytes());
    const auto item = static_cast<std::int64_t>(
        c.options.moments_dtype == torch::kBFloat16 ? 2 : 4);
    std::int64_t offloaded = 0;  // of both moments, each block whole
    for (const FlatShard& shard : flat_shards(*paged)) {
      offloaded += 2 * offload_aligned(shard.parameters.numel() * item);
    }
    if (c.buffers <= 8) {  // fewer than there are blocks
      EXPECT_EQ(optimizer.held_bytes(), c.buffers * kBlockBytes);
    }
    EXPECT_LE(optimizer.held_bytes(), offloaded);
    EXPECT_EQ(in_memory.held_bytes(), in_memory.state_bytes());
    EXPECT_EQ(in_memory.offload_counters().has_value(), false);
  });
}

TEST(MomentsOffload, IsBitForBitAsInMemory) {
  for (const Place place : {Place::Host, Place::Nvme}) {
    for (const int world : {1, 2, 3, 4}) {
      for (const bool in_backward : {false, true}) {
        SCOPED_TRACE(std::to_string(world) + " ranks");
        expect_same_as_in_memory({.place = place, .in_backward = in_backward},
                                 world);
      }
    }
  }
}

TEST(MomentsOffload, NeedsTwoBuffersAndTakesMore) {
  for (const int buffers : {2, 3, 5, 64}) {
    SCOPED_TRACE(std::to_string(buffers) + " buffers");
    expect_same_as_in_memory({.place = Place::Nvme, .buffers = buffers}, 2);
  }
}

TEST(MomentsOffload, RoundsAsInMemory) {
  Case c{.place = Place::Nvme};
  c.options.moments_dtype = torch::kBFloat16;
  expect_same_as_in_memory(c, 2);
  c.options.stochastic_rounding = true;
  expect_same_as_in_memory(c, 3);
}

TEST(MomentsOffload, CountsWhatItMoves) {
  on_ranks(1, [](const DeviceMesh& mesh) {
    auto net = seeded<Unit<testing::UnitNet>>();
    fully_shard(net, mesh);
    HostPool pool(1 << 20);
    AdamWOptions options;
    options.offload = offload_of({}, pool);
    AdamW optimizer(net, options);
    std::int64_t bytes = 0;  // of both moments, each block whole
    for (const FlatShard& shard : flat_shards(*net)) {
      bytes += 2 * offload_aligned(
                       static_cast<std::int64_t>(shard.parameters.nbytes()));
    }
    EXPECT_EQ(pool.held_bytes(), bytes);
    for (int step = 0; step < 3; ++step) {
      net(testing::batch_of(step, 4)).square().mean().backward();
      optimizer.step();
      EXPECT_EQ(optimizer.offload_counters()->bytes_written,
                (step + 1) * bytes);
    }
    // Blocks that still have a buffer are not read.
    const OffloadCounters counters = *optimizer.offload_counters();
    EXPECT_LE(counters.bytes_read, 2 * bytes);
    EXPECT_EQ(counters.reads_in_time, counters.reads);
    EXPECT_THAT(optimizer.describe_offload(), HasSubstr("host memory"));
  });
}

TEST(MomentsOffload, ReadsAheadInTheOrderOfTheStepBefore) {
  on_ranks(1, [](const DeviceMesh& mesh) {
    auto net = seeded<Unit<testing::UnitNet>>();
    fully_shard(net, mesh, {.step_in_backward = true});
    HostPool pool(1 << 20);
    AdamWOptions options;
    options.offload = offload_of({.buffers = 4}, pool);
    AdamW optimizer(net, options);
    StepInBackward stepper(net, optimizer, {});
    for (int step = 0; step < 4; ++step) {
      net(testing::batch_of(step, 4)).square().mean().backward();
    }
    // All but the first of the second step: what follows a step was not known.
    const OffloadCounters counters = *optimizer.offload_counters();
    EXPECT_GT(counters.reads, 3);
    EXPECT_EQ(counters.reads_in_time, counters.reads - 1);
  });
}

TEST(MomentsOffload, ParametersThatThawGetTheirOwn) {
  on_ranks(2, [](const DeviceMesh& mesh) {
    auto net = seeded<Unit<testing::UnitNet>>();
    const auto set_trainable = [&](bool trainable) {
      for (auto& parameter : net->blocks[0]->parameters()) {
        parameter.set_requires_grad(trainable);
      }
    };
    set_trainable(false);
    fully_shard(net, mesh);
    HostPool pool(1 << 20);
    AdamWOptions options;
    options.offload = offload_of({}, pool);
    AdamW optimizer(net, options);
    const std::int64_t before = pool.held_bytes();
    const auto step = [&] {
      optimizer.zero_grad();
      net(testing::batch_of(0, 4)).square().mean().backward();
      optimizer.step();
    };
    step();
    set_trainable(true);
    step();
    EXPECT_GT(pool.held_bytes(), before);
    EXPECT_EQ(optimizer.moments("block0.up.weight")->steps, 1);
    EXPECT_EQ(optimizer.moments("block1.up.weight")->steps, 2);
  });
}

TEST(MomentsOffload, MistakesAreNamed) {
  on_ranks(1, [](const DeviceMesh& mesh) {
    auto net = seeded<Unit<testing::UnitNet>>();
    fully_shard(net, mesh);
    HostPool pool(1 << 20);
    const auto error_with = [&](const auto& change) {
      AdamWOptions options;
      options.offload = offload_of({}, pool);
      change(*options.offload);
      return message_of<std::exception>([&] { AdamW(net, options); });
    };
    EXPECT_THAT(error_with([](OffloadTarget& o) { o.block_bytes = 1000; }),
                HasSubstr("block_bytes is 1000; give a multiple of 4096"));
    EXPECT_THAT(error_with([](OffloadTarget& o) { o.buffers = 1; }),
                HasSubstr("buffers is 1; what is used together"));
    EXPECT_THAT(error_with([](OffloadTarget& o) {
                  o.make_store = offload_to_nvme("/no/such").make_store;
                }),
                HasSubstr("/no/such"));
    HostPool small(4096);
    EXPECT_THAT(error_with([&](OffloadTarget& o) {
                  o.make_store = offload_to_host(small).make_store;
                }),
                HasSubstr("raise the limit of the pool"));
  });
}

}  // namespace
}  // namespace accordion
