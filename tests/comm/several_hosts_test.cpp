// SPDX-License-Identifier: BSD-3-Clause
// Meshes over hosts that Rendezvous::host plays on one machine: which backend
// joins which group, and that its collectives are right.
#include <gtest/gtest.h>

#include <thread>

#include "accordion/comm/device_mesh.h"
#include "tests/comm/collective_checks.h"
#include "tests/support/rank_harness.h"

namespace accordion::testing {
namespace {

// `hosts` holds a letter per rank: the host that it plays to be on.
Rendezvous on_host(const RankContext& c, const std::string& hosts) {
  Rendezvous rendezvous = Rendezvous::from_environment();
  rendezvous.host = hosts.substr(static_cast<std::size_t>(c.rank), 1);
  rendezvous.local_world_size = 1;  // what counts is where ranks are
  rendezvous.network_interface = "lo";
  return rendezvous;
}

DeviceMesh mesh_on(const RankContext& c, const std::string& hosts,
                   std::vector<MeshAxis> axes,
                   const std::string& backend = "auto") {
  return DeviceMesh::connect(on_host(c, hosts),
                             {.backend = backend,
                              .axes = std::move(axes),
                              .timeout = std::chrono::seconds(30)});
}

const RankProgram kHybrid("hosts_hybrid", [](const RankContext& c) {
  const DeviceMesh mesh = mesh_on(c, "aabb", {{"replicate", 2}, {"shard", 2}});
  EXPECT_EQ(mesh.communicator("shard").backend(), "shm");
  EXPECT_EQ(mesh.communicator("replicate").backend(), "gloo");
  EXPECT_EQ(mesh.world().backend(), "hierarchical");
  check_sums_repeat(mesh.communicator("shard"), Memory::CommBuffers);
  check_sums_repeat(mesh.communicator("replicate"), Memory::CommBuffers);
  check_sums_repeat(mesh.world(), Memory::CommBuffers, 2);
});

TEST(SeveralHosts, EachAxisIsJoinedByWhereItsRanksAre) {
  expect_ranks_pass(kHybrid, 4);
}

const RankProgram kOneAxis("hosts_one_axis", [](const RankContext& c) {
  const DeviceMesh mesh = mesh_on(c, "aabb", {}, "hierarchical");
  Communicator& all = mesh.communicator("shard");
  EXPECT_EQ(all.backend(), "hierarchical");
  EXPECT_EQ(all.rank(), c.rank);
  check_collectives(all, Memory::CommBuffers);
  check_counters(all);
  check_slot_reuse(all, 20);
  EXPECT_EQ(mesh.neighbours("shard", 2)->backend(), "shm");
});

TEST(SeveralHosts, CollectivesOverSharedMemoryAndGlooAreRight) {
  expect_ranks_pass(kOneAxis, 4);
}

const RankProgram kUneven("hosts_uneven", [](const RankContext& c) {
  const std::string& hosts = c.arguments.at(0);
  const DeviceMesh mesh = mesh_on(c, hosts, {});
  EXPECT_EQ(mesh.world().backend(), "gloo");
  check_sums_repeat(mesh.world(), Memory::Ordinary);
  const std::string message =
      message_of([&] { mesh_on(c, hosts, {}, "hierarchical"); });
  EXPECT_NE(message.find("needs equally many consecutive ranks of group "
                         "'world' on each host, but it has host 0: " +
                         c.arguments.at(1)),
            std::string::npos)
      << message;
});

TEST(SeveralHosts, UnevenOnesFallBackToGlooOrAreRefused) {
  expect_ranks_pass(kUneven, 3, {"aab", "0, 1; host 1: 2."});
  expect_ranks_pass(kUneven, 4, {"abab", "0, 2; host 1: 1, 3."});
}

// The launcher says several hosts; the ranks find that they share one.
const RankProgram kOneHost("hosts_one", [](const RankContext& c) {
  EXPECT_EQ(mesh_on(c, "aaa", {}).world().backend(), "shm");
});

TEST(SeveralHosts, WhereRanksAreCountsNotWhatTheLauncherSays) {
  expect_ranks_pass(kOneHost, 3);
}

const RankProgram kNames("hosts_names", [](const RankContext& c) {
  const DeviceMesh mesh = DeviceMesh::connect(
      on_host(c, "aabb"), {.axes = {{"replicate", 2}, {"shard", 2}},
                           .timeout = std::chrono::milliseconds(1500)});
  mesh.world().barrier("all there");
  if (c.rank == 3) {
    // Outlives the patience of rank 1, which ends the test.
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    return;
  }
  if (c.rank == 1) {
    const std::string message =
        message_of([&] { mesh.communicator("replicate").barrier("step 7"); });
    EXPECT_NE(message.find("barrier 'step 7' (call 1 of its kind) failed on "
                           "rank 1 of ranks 1 and 3 while waiting for rank 3"),
              std::string::npos)
        << message;
  }
});

TEST(SeveralHosts, ErrorsOfAnAxisCallRanksByTheirNumberInTheMesh) {
  expect_ranks_pass(kNames, 4);
}

const RankProgram kNoInterface("hosts_interface", [](const RankContext& c) {
  const std::string message = message_of(
      [&] { DeviceMesh::connect(on_host(c, "ab"), {.interface = "eth77"}); });
  EXPECT_NE(message.find("no network interface 'eth77' is up on this host"),
            std::string::npos)
      << message;
});

TEST(SeveralHosts, InterfaceThatDoesNotExistIsNamed) {
  expect_ranks_pass(kNoInterface, 2);
}

}  // namespace
}  // namespace accordion::testing
