// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "accordion/checkpoint/checkpoint_reader.h"
#include "accordion/fsdp/fully_shard.h"
#include "tests/fsdp/models.h"
#include "tests/fsdp/rank_threads.h"

namespace accordion::testing {

/// Trains a net on this rank's rows of the steps' batches.
template <class Net, class Optimizer>
void train(const DeviceMesh& mesh, Net& net, Optimizer& optimizer, int first,
           int last) {
  constexpr int kRows = 12;
  const auto mine = [&](const torch::Tensor& batch) {
    return rows_of(batch, mesh.rank(), mesh.world_size());
  };
  for (int step = first; step < last; ++step) {
    optimizer.zero_grad();
    loss_of(net(mine(batch_of(step, kRows))), mine(target_of(step, kRows)))
        .backward();
    optimizer.step();
  }
}

/// Calls `body` with a sharded net on each rank of a world.
template <class Body>
void with_nets(int world, const Body& body) {
  on_ranks(world, [&](const DeviceMesh& mesh) {
    auto net = seeded<Unit<UnitNet>>();
    fully_shard(net, mesh);
    body(mesh, net);
  });
}

/// The values of a tensor of a checkpoint.
inline std::vector<float> whole(const std::filesystem::path& path,
                                const std::string& name) {
  CheckpointReader reader(path);
  std::vector<float> values(
      static_cast<std::size_t>(reader.find(name)->numel()));
  reader.read(name, 0, std::as_writable_bytes(std::span(values)));
  return values;
}

}  // namespace accordion::testing
