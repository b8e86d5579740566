// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/device_mesh.h"

#include <gtest/gtest.h>

#include "accordion/comm/fake/fake_communicator.h"
#include "accordion/comm/nccl/nccl_groups.h"
#include "accordion/comm/shm/shm_communicator.h"
#include "tests/comm/collective_checks.h"
#include "tests/support/rank_harness.h"

namespace accordion::testing {
namespace {

Rendezvous world_of(int rank, int world_size) {
  Rendezvous rendezvous;
  rendezvous.rank = rendezvous.local_rank = rank;
  rendezvous.world_size = rendezvous.local_world_size = world_size;
  return rendezvous;
}

DeviceMesh fake_mesh(int rank, std::vector<MeshAxis> axes, int world_size) {
  return DeviceMesh::connect(world_of(rank, world_size),
                             {.backend = "fake", .axes = std::move(axes)});
}

TEST(DeviceMesh, OneProcessAloneIsAMeshOfOneRank) {
  for (const char* backend : {"shm", "gloo", "fake"}) {
    const DeviceMesh mesh =
        DeviceMesh::connect(Rendezvous{}, {.backend = backend});
    EXPECT_EQ(mesh.world_size(), 1);
    EXPECT_EQ(mesh.size("shard"), 1);
    EXPECT_EQ(mesh.world().backend(), backend);
    check_collectives(mesh.world(), Memory::CommBuffers);
  }
}

TEST(DeviceMesh, LastAxisVariesFastest) {
  const DeviceMesh mesh =
      fake_mesh(17, {{"replicate", 2}, {"shard", 4}, {"tensor", 3}}, 24);
  EXPECT_EQ(mesh.coordinate("replicate"), 1);
  EXPECT_EQ(mesh.coordinate("shard"), 1);
  EXPECT_EQ(mesh.coordinate("tensor"), 2);
  EXPECT_EQ(mesh.communicator("shard").world_size(), 4);
  EXPECT_EQ(mesh.communicator("shard").rank(), 1);
  EXPECT_EQ(mesh.world().world_size(), 24);
}

TEST(DeviceMesh, AbsentAxisHasOneRankButNoCommunicator) {
  const DeviceMesh mesh = fake_mesh(3, {}, 8);
  EXPECT_FALSE(mesh.has_axis("replicate"));
  EXPECT_EQ(mesh.size("replicate"), 1);
  EXPECT_EQ(mesh.coordinate("replicate"), 0);
  EXPECT_NE(message_of([&] {
              mesh.communicator("replicate").barrier("x");
            }).find("no axis is named 'replicate'; the mesh has 'shard' (8)"),
            std::string::npos);
}

TEST(DeviceMesh, ImpossibleMeshesAreErrors) {
  EXPECT_NE(
      message_of([] {
        fake_mesh(0, {{"shard", 3}}, 4);
      }).find("axes 'shard' (3) make a mesh of 3 ranks, but the world has 4"),
      std::string::npos);
  EXPECT_NE(message_of([] {
              fake_mesh(0, {{"shard", 2}, {"shard", 2}}, 4);
            }).find("a name of its own"),
            std::string::npos);
  EXPECT_NE(message_of([] {
              DeviceMesh::connect(Rendezvous{}, {.backend = "mpi"});
            }).find("no backend is named 'mpi'"),
            std::string::npos);
  if (!detail::has_cuda()) {
    EXPECT_NE(message_of([] {
                DeviceMesh::connect(Rendezvous{}, {.backend = "nccl"});
              }).find("configure it with -DACCORDION_CUDA=ON"),
              std::string::npos);
  }
  Rendezvous two_hosts = world_of(0, 4);
  two_hosts.local_world_size = 2;
  EXPECT_NE(message_of([&] {
              DeviceMesh::connect(two_hosts, {.backend = "shm"});
            }).find("only 2 of 4 ranks are on this one. Use backend auto"),
            std::string::npos);
}

// Sums rank numbers along each axis of a 2 x 2 mesh.
const RankProgram kGrid("mesh_grid", [](const RankContext& c) {
  const DeviceMesh mesh =
      DeviceMesh::from_environment({.backend = c.arguments.at(0),
                                    .axes = {{"replicate", 2}, {"shard", 2}},
                                    .timeout = std::chrono::seconds(30)});
  EXPECT_EQ(mesh.rank(), c.rank);
  const auto sum = [&](Communicator& communicator) {
    float value = static_cast<float>(c.rank);
    const ReducePart part = {&value,         DType::Float32, &value,
                             DType::Float32, DType::Float32, 1};
    communicator.all_reduce({&part, 1}, nullptr, "sum").wait();
    return value;
  };
  const int row = c.rank / 2 * 2;
  EXPECT_EQ(sum(mesh.communicator("shard")), static_cast<float>(2 * row + 1));
  EXPECT_EQ(sum(mesh.communicator("replicate")),
            static_cast<float>(2 * (c.rank % 2) + 2));
  EXPECT_EQ(sum(mesh.world()), 6.0f);
});

// Sums rank numbers over the pairs of neighbours among four ranks.
const RankProgram kNeighbours("mesh_neighbours", [](const RankContext& c) {
  const DeviceMesh mesh = DeviceMesh::from_environment(
      {.backend = c.arguments.at(0), .timeout = std::chrono::seconds(30)});
  float value = static_cast<float>(c.rank);
  const ReducePart part = {&value,         DType::Float32, &value,
                           DType::Float32, DType::Float32, 1};
  mesh.neighbours("shard", 2)->all_reduce({&part, 1}, nullptr, "sum").wait();
  EXPECT_EQ(value, static_cast<float>(c.rank / 2 * 4 + 1));
});

TEST(DeviceMesh, NeighboursAreConnectedWhenAskedFor) {
  expect_ranks_pass(kNeighbours, 4, {"shm"});
  expect_ranks_pass(kNeighbours, 4, {"gloo"});
  const auto fake = fake_mesh(13, {}, 4096).neighbours("shard", 8);
  EXPECT_EQ(fake->rank(), 5);
  EXPECT_EQ(fake->world_size(), 8);
  EXPECT_EQ(fake->backend(), "fake");
}

TEST(DeviceMesh, EachAxisJoinsItsRanks) {
  expect_ranks_pass(kGrid, 4, {"shm"});
  expect_ranks_pass(kGrid, 4, {"gloo"});
}

TEST(DeviceMesh, LiesOverACommunicatorOfThreads) {
  auto ranks = make_local_shm_group(2, std::chrono::seconds(10));
  const DeviceMesh mesh = DeviceMesh::over(std::move(ranks[1]));
  EXPECT_EQ(mesh.rank(), 1);
  EXPECT_EQ(mesh.size("shard"), 2);
  EXPECT_EQ(mesh.coordinate("shard"), 1);
  EXPECT_EQ(mesh.neighbours("shard", 2), mesh.shared_communicator("shard"));
  EXPECT_EQ(mesh.neighbours("shard", 1)->world_size(), 1);
}

TEST(DeviceMesh, OverOneCommunicatorHasNoSmallerGroups) {
  const DeviceMesh mesh = DeviceMesh::over(make_fake_communicator(0, 4));
  EXPECT_NE(
      message_of([&] {
        (void)mesh.neighbours("shard", 2);
      }).find("one communicator of 4 ranks has no groups of 2 neighbours"),
      std::string::npos);
}

}  // namespace
}  // namespace accordion::testing
