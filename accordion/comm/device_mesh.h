// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "accordion/comm/communicator.h"
#include "accordion/comm/group_connector.h"
#include "accordion/comm/mesh_grid.h"
#include "accordion/comm/rendezvous.h"

namespace accordion {

struct DeviceMeshOptions {
  /// What joins the ranks of a group, see docs/launchers.md:
  ///   auto          by where they are: shm on one host, gloo where each is on
  ///                 its own, hierarchical where several hosts hold as many
  ///                 consecutive ones each, else gloo
  ///   shm           shared memory; all ranks on one host
  ///   gloo          TCP
  ///   hierarchical  as auto, but what would be gloo instead is an error
  ///   nccl          the ranks' CUDA devices, one each; the ranks themselves
  ///                 meet as with auto (docs/gpu.md)
  ///   fake          nothing: one process plays its rank
  ///   meta          nothing: the same without memory, where what fully_shard
  ///                 shards stays on meta (Communicator::has_memory)
  std::string backend = "auto";
  /// From the outermost axis, whose neighbours are furthest apart, to the
  /// innermost. Empty: one axis "shard" over all ranks.
  std::vector<MeshAxis> axes = {};
  /// Longest wait for a peer before an error. Where a group spans several hosts
  /// with several ranks each, a second more for peers on the same host, so that
  /// the error names the host that is missing.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  /// gloo and nccl: ranks compare what they call before each collective, so that a
  /// disagreement is an error that names both sides. shm always does.
  bool debug_calls = false;
  /// Network interface between hosts, such as "eth0"; empty: that of
  /// GLOO_SOCKET_IFNAME, else the one that leads to the host of rank 0.
  std::string interface = {};
};

/// An n-dimensional grid of ranks with a communicator along each axis. A
/// handle: copies share the communicators.
///
/// Threads  one thread at a time
class DeviceMesh {
 public:
  /// A mesh over the ranks that torchrun, mpirun, srun or `accordion run`
  /// started. One process alone, started by hand, is a mesh of one rank.
  ///
  /// Comm   connects all ranks
  /// Throws std::invalid_argument for axes whose sizes do not multiply to the
  ///        world size, or an unknown backend; CommError when peers are late
  static DeviceMesh from_environment(const DeviceMeshOptions& options = {});

  /// The same with a rendezvous of the caller's.
  static DeviceMesh connect(const Rendezvous& rendezvous,
                            const DeviceMeshOptions& options = {});

  /// A mesh of one axis over a communicator that exists. Its groups of
  /// neighbours are the axis and single ranks; make_local_meshes has them all.
  static DeviceMesh over(std::shared_ptr<Communicator> communicator,
                         std::string axis = "shard");

  [[nodiscard]] int rank() const;
  [[nodiscard]] int world_size() const;
  [[nodiscard]] const std::vector<MeshAxis>& axes() const;
  [[nodiscard]] bool has_axis(std::string_view axis) const;
  /// Ranks along an axis; 1 where the mesh has no such axis.
  [[nodiscard]] int size(std::string_view axis) const;
  /// This rank's position along an axis.
  [[nodiscard]] int coordinate(std::string_view axis) const;

  /// The ranks that differ from this one only along `axis`.
  /// Throws std::invalid_argument that lists the axes when there is none such.
  [[nodiscard]] Communicator& communicator(std::string_view axis) const;
  /// The same, to be kept beyond the mesh.
  [[nodiscard]] std::shared_ptr<Communicator> shared_communicator(
      std::string_view axis) const;
  /// The block of `count` consecutive ranks along `axis` that this one is in:
  /// the ranks with equal coordinate / count. Connected by the first call,
  /// found again by later ones.
  ///
  /// Comm   collective among those ranks when first called
  /// Throws std::invalid_argument unless `count` divides the axis' size, and
  ///        for an axis that the mesh lacks; CommError when peers are late
  [[nodiscard]] std::shared_ptr<Communicator> neighbours(std::string_view axis,
                                                         int count) const;
  /// All ranks of the mesh.
  [[nodiscard]] Communicator& world() const;
  /// 0, 1, 2, … with each call: tells apart in labels, alike on every rank,
  /// what ranks make over the mesh one after the other.
  [[nodiscard]] int take_number() const;

 private:
  struct State;
  friend std::vector<DeviceMesh> make_local_meshes(std::vector<MeshAxis>,
                                                   std::chrono::milliseconds);

  // Connects the groups of `grid` through `connect`.
  DeviceMesh(detail::MeshGrid grid, detail::GroupConnector connect);
  explicit DeviceMesh(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace accordion
