// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/config_options.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/fixtures.h"
#include "tests/train/train_ranks.h"

namespace accordion {
namespace {

using ::testing::HasSubstr;
using testing::message_of;

TrainConfig config_with(const std::vector<std::string>& more) {
  std::vector<std::string> keys = testing::parity_keys("tiny");
  keys.insert(keys.end(), more.begin(), more.end());
  return parse_config("", "test.toml", keys);
}

/// "replicate x shard", or "shard" where there is one axis.
std::vector<int> sizes(const std::vector<std::string>& keys, int world,
                       int per_host) {
  std::vector<int> result;
  for (const MeshAxis& axis :
       mesh_axes(config_with(keys),
                 {.world_size = world, .local_world_size = per_host})) {
    result.push_back(axis.size);
  }
  return result;
}

using Sizes = std::vector<int>;

TEST(MeshAxes, HybridHasAReplicaAHostOrTwo) {
  EXPECT_EQ(sizes({}, 6, 3), Sizes({6}));
  EXPECT_EQ(sizes({"fsdp.strategy=hybrid"}, 6, 6), Sizes({2, 3}));
  EXPECT_EQ(sizes({"fsdp.strategy=hybrid"}, 12, 4), Sizes({3, 4}));
  EXPECT_EQ(sizes({"fsdp.strategy=hybrid", "fsdp.replicas=4"}, 12, 4),
            Sizes({4, 3}));
  EXPECT_EQ(sizes({"fsdp.strategy=shard_grad_op", "fsdp.replicas=3"}, 6, 6),
            Sizes({3, 2}));
  EXPECT_EQ(sizes({"fsdp.strategy=hybrid", "fsdp.replicas=1"}, 6, 6),
            Sizes({6}));
}

TEST(MeshAxes, ErrorsNameBothNumbers) {
  const auto error = [](const std::vector<std::string>& keys, int world) {
    return message_of([&] { sizes(keys, world, world); });
  };
  EXPECT_THAT(error({"fsdp.strategy=hybrid", "fsdp.replicas=2"}, 3),
              HasSubstr("2 replicas do not divide 3 ranks."));
  EXPECT_THAT(error({"fsdp.strategy=hybrid"}, 1),
              HasSubstr("2 replicas do not divide 1 ranks (fsdp.replicas is 0: "
                        "one a host, or 2)"));
  EXPECT_THAT(
      error({"fsdp.strategy=hybrid", "fsdp.reshard_to_ranks=4"}, 4),
      HasSubstr("'fsdp.reshard_to_ranks' is 4, which does not divide the 2 "
                "ranks of a replica"));
}

TEST(FsdpOptionsOfAConfig, FollowItsKeys) {
  const FsdpOptions plain = fsdp_options(config_with({}));
  EXPECT_EQ(plain.strategy, Strategy::FullShard);
  EXPECT_EQ(plain.accumulation, std::nullopt);
  EXPECT_EQ(plain.keep_parameters_across_microbatches, std::nullopt);
  const FsdpOptions options = fsdp_options(config_with(
      {"fsdp.strategy=hybrid", "fsdp.accumulation=deferred_all_reduce",
       "fsdp.keep_parameters=true", "fsdp.prefetch_bytes=7",
       "fsdp.min_shard_numel=8", "fsdp.reshard_to_ranks=2"}));
  EXPECT_EQ(options.strategy, Strategy::FullShard);
  EXPECT_EQ(options.accumulation, Accumulation::DeferredAllReduce);
  EXPECT_EQ(options.keep_parameters_across_microbatches, true);
  EXPECT_EQ(options.prefetch_bytes, 7);
  EXPECT_EQ(options.min_shard_numel, 8);
  EXPECT_EQ(options.reshard_to_ranks, 2);
  for (const auto& [name, strategy] :
       std::vector<std::pair<std::string, Strategy>>{
           {"shard_grad_op", Strategy::ShardGradOp},
           {"shard_optimizer", Strategy::ShardOptimizer},
           {"no_shard", Strategy::NoShard}}) {
    EXPECT_EQ(fsdp_options(config_with({"fsdp.strategy=" + name})).strategy,
              strategy);
  }
}

}  // namespace
}  // namespace accordion
