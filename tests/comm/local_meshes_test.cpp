// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/local_meshes.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "tests/comm/collective_checks.h"

namespace accordion::testing {
namespace {

// Runs `body` for each mesh in a thread of its own.
void run_meshes(std::vector<MeshAxis> axes,
                const std::function<void(const DeviceMesh&)>& body) {
  const auto meshes =
      make_local_meshes(std::move(axes), std::chrono::seconds(30));
  std::vector<std::thread> threads;
  for (const DeviceMesh& mesh : meshes) {
    threads.emplace_back([&body, &mesh] {
      try {
        body(mesh);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << mesh.rank() << " threw: " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

// Sum of the mesh ranks over the members of a group.
float sum_of_ranks(const DeviceMesh& mesh, Communicator& communicator) {
  float value = static_cast<float>(mesh.rank());
  const ReducePart part = {&value,         DType::Float32, &value,
                           DType::Float32, DType::Float32, 1};
  communicator.all_reduce({&part, 1}, nullptr, "sum").wait();
  return value;
}

TEST(LocalMeshes, EachAxisJoinsItsRanks) {
  run_meshes({{"replicate", 2}, {"shard", 2}}, [](const DeviceMesh& mesh) {
    const int row = mesh.rank() / 2;
    const int column = mesh.rank() % 2;
    EXPECT_EQ(mesh.coordinate("replicate"), row);
    EXPECT_EQ(mesh.coordinate("shard"), column);
    EXPECT_EQ(sum_of_ranks(mesh, mesh.communicator("shard")), 4 * row + 1);
    EXPECT_EQ(sum_of_ranks(mesh, mesh.communicator("replicate")),
              2 * column + 2);
    EXPECT_EQ(sum_of_ranks(mesh, mesh.world()), 6);
  });
}

TEST(LocalMeshes, AxesOfOneRankAreLone) {
  for (const auto& [replicate, shard] : {std::pair(1, 3), std::pair(3, 1)}) {
    run_meshes({{"replicate", replicate}, {"shard", shard}},
               [&](const DeviceMesh& mesh) {
                 EXPECT_EQ(mesh.size("replicate"), replicate);
                 EXPECT_EQ(mesh.size("shard"), shard);
                 for (const char* axis : {"replicate", "shard"}) {
                   const bool lone = mesh.size(axis) == 1;
                   EXPECT_EQ(sum_of_ranks(mesh, mesh.communicator(axis)),
                             lone ? mesh.rank() : 3);
                 }
               });
  }
}

TEST(LocalMeshes, WithoutAxesThereIsOneRank) {
  run_meshes({}, [](const DeviceMesh& mesh) {
    EXPECT_EQ(mesh.world_size(), 1);
    EXPECT_EQ(sum_of_ranks(mesh, mesh.communicator("shard")), 0);
  });
}

TEST(LocalMeshes, NeighboursAreConsecutiveAlongTheAxis) {
  run_meshes({{"shard", 4}, {"tensor", 1}}, [](const DeviceMesh& mesh) {
    const auto pair = mesh.neighbours("shard", 2);
    EXPECT_EQ(pair->rank(), mesh.rank() % 2);
    EXPECT_EQ(pair->world_size(), 2);
    EXPECT_EQ(sum_of_ranks(mesh, *pair), mesh.rank() / 2 * 4 + 1);
  });
}

TEST(LocalMeshes, NeighboursKeepTheOtherCoordinates) {
  run_meshes({{"shard", 4}, {"tensor", 2}}, [](const DeviceMesh& mesh) {
    const int first = mesh.rank() / 4 * 4 + mesh.rank() % 2;
    EXPECT_EQ(sum_of_ranks(mesh, *mesh.neighbours("shard", 2)), 2 * first + 2);
  });
}

TEST(LocalMeshes, NeighboursAreConnectedOnce) {
  run_meshes({{"shard", 4}}, [](const DeviceMesh& mesh) {
    const DeviceMesh copy = mesh;
    EXPECT_EQ(mesh.neighbours("shard", 2), copy.neighbours("shard", 2));
    EXPECT_EQ(mesh.neighbours("shard", 4), mesh.shared_communicator("shard"));
    const auto alone = mesh.neighbours("shard", 1);
    EXPECT_EQ(alone, copy.neighbours("shard", 1));
    EXPECT_EQ(sum_of_ranks(mesh, *alone), mesh.rank());
  });
}

TEST(LocalMeshes, NeighboursMustDivideTheAxis) {
  run_meshes({{"shard", 4}}, [](const DeviceMesh& mesh) {
    for (const int count : {3, 0, 8}) {
      EXPECT_NE(
          message_of([&] { (void)mesh.neighbours("shard", count); })
              .find("axis 'shard' has 4 ranks, which cannot be cut into "
                    "groups of " +
                    std::to_string(count) + ": choose a number that divides 4"),
          std::string::npos);
    }
    EXPECT_NE(message_of([&] {
                (void)mesh.neighbours("replicate", 2);
              }).find("no axis is named 'replicate'"),
              std::string::npos);
  });
}

TEST(LocalMeshes, ImpossibleAxesAreErrors) {
  EXPECT_NE(message_of([] {
              make_local_meshes({{"shard", 0}});
            }).find("a name of its own and a size of at least 1"),
            std::string::npos);
}

}  // namespace
}  // namespace accordion::testing
