// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/collective_time.h"

#include <gtest/gtest.h>

namespace accordion::plan {
namespace {

/// 8 to a host at 100 B/s, 10 B/s of network each, 1 s and 2 s a hop.
Cluster cluster_of(int hosts) {
  Cluster cluster;
  cluster.num_hosts = hosts;
  cluster.gpus_per_host = 8;
  cluster.inside = {"inside", 200.0, 0.5, 1.0};
  cluster.between = {"between", 20.0, 0.5, 2.0};
  return cluster;
}

TEST(CollectiveTime, OneRankTakesNone) {
  EXPECT_EQ(ring_time(1e9, {1, 1}, cluster_of(1)), 0.0);
  EXPECT_EQ(all_reduce_time(1e9, ComputeType::Fp32, {1, 1}, cluster_of(1)),
            0.0);
}

TEST(CollectiveTime, RingOnAHostIsAlphaAndBeta) {
  // 7 hops, 7/8 of the bytes.
  EXPECT_DOUBLE_EQ(ring_time(800.0, {8, 8}, cluster_of(1)), 7.0 + 7.0);
  EXPECT_DOUBLE_EQ(
      all_reduce_time(800.0, ComputeType::Fp32, {8, 8}, cluster_of(1)), 28.0);
}

TEST(CollectiveTime, RingOverHostsUsesAllPortsOfAHost) {
  const Cluster cluster = cluster_of(2);
  EXPECT_DOUBLE_EQ(ring_rate({16, 8}, cluster), 80.0);
  // 14 hops inside, one between.
  EXPECT_DOUBLE_EQ(ring_time(1280.0, {16, 8}, cluster), 15.0 + 14.0 + 2.0);
  EXPECT_DOUBLE_EQ(ring_rate({2, 1}, cluster), 10.0);
}

TEST(CollectiveTime, TreeWinsForFewBytesOnManyHosts) {
  const Cluster cluster = cluster_of(64);
  const GroupShape group = {512, 8};
  EXPECT_LT(all_reduce_time(8.0, ComputeType::Fp32, group, cluster),
            2.0 * ring_time(8.0, group, cluster));
}

TEST(CollectiveTime, GroupsLieAsRanksDo) {
  const Cluster cluster = cluster_of(4);
  Strategy strategy;
  strategy.dp_replicate = 2;
  strategy.dp_shard = 4;
  strategy.tensor = 4;
  EXPECT_EQ(tensor_group(strategy, cluster).hosts(), 1);
  EXPECT_EQ(shard_group(strategy, cluster).ranks_per_host, 2);
  EXPECT_EQ(replicate_group(strategy, cluster).ranks_per_host, 1);
}

}  // namespace
}  // namespace accordion::plan
