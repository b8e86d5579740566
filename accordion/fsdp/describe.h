// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "accordion/comm/mesh_grid.h"
#include "accordion/fsdp/options.h"
#include "accordion/fsdp/sharded_module.h"
#include "accordion/fsdp/wrap_policy.h"
#include "accordion/shard/unit_layout.h"

// What fully_shard made of a module, as a value, and as text for a log.
namespace accordion {

/// A parameter, and what this rank has of it.
struct ParameterDescription {
  /// FQNs under which it is registered: more than one where it is tied.
  std::vector<std::string> names = {};
  std::vector<std::int64_t> shape = {};  ///< global shape
  DType stored_dtype = DType::Float32;
  DType gathered_dtype = DType::Float32;
  ParameterPlacement placement = ParameterPlacement::Shard;
  bool requires_grad = true;
  Piece piece = {};        ///< elements and local shape
  std::int64_t bytes = 0;  ///< of the piece, in the stored dtype
  /// Counted by the vocabulary: an embedding, or what has its number of rows.
  bool per_token = false;

  [[nodiscard]] std::int64_t numel() const;
};

/// An FSDP unit. The sections' parameters are indices into `parameters`.
struct UnitDescription {
  std::string name = {};  ///< FQN; "" for the root
  int parent = -1;        ///< index of the unit around it; -1 for the outermost
  bool reshard_after_forward = true;
  bool checkpoints_activations = false;
  bool gathers_in_place = false;  ///< needs no slot
  std::vector<ParameterDescription> parameters = {};
  std::vector<Section> sections = {};
  std::int64_t shard_bytes = 0;      ///< of this rank, padding included
  std::int64_t unsharded_bytes = 0;  ///< of a gather; 0: always whole
  std::int64_t gradient_bytes = 0;   ///< of a reduction

  [[nodiscard]] std::int64_t numel() const;
};

struct ModuleDescription {
  Strategy strategy = Strategy::FullShard;
  std::vector<MeshAxis> axes = {};
  int rank = 0;
  int gather_ranks = 1;  ///< over which parameters are cut
  MixedPrecision precision = {};
  int prefetch = 1;
  std::int64_t prefetch_bytes = 0;
  bool step_in_backward = false;
  /// What is kept out of memory: "gradients", "parameters", "activations".
  std::vector<std::string> offloaded = {};
  std::vector<UnitDescription> units = {};  ///< outer before inner
  /// Parameters that were left alone; of these, names and shapes.
  std::vector<ParameterDescription> ignored = {};
  /// Declared units that the wrap policy did not choose.
  std::vector<WrapDecision> dissolved = {};
  ShardedBytes bytes = {};  ///< of this rank, now

  [[nodiscard]] std::int64_t numel() const;  ///< less ignored parameters
};

/// Describes a sharded module. May be called anywhere, also within a pass.
///
/// Comm   none; any rank may call it alone
/// Throws c10::ValueError when `root` is not sharded
ModuleDescription describe(const torch::nn::Module& root);

template <class Contained>
ModuleDescription describe(const torch::nn::ModuleHolder<Contained>& root) {
  return describe(static_cast<const torch::nn::Module&>(*root));
}

/// What is likely wrong, a sentence each: what, where, what to do. Empty for a
/// module that is cut well.
///
/// // [Note: when a warning is right]
/// Each has a remedy, and is given only where that saves time or memory: a unit
/// is called large where halves of it are worth gathering, and small where the
/// latency of a collective, and not its bytes, is what it costs. Nothing is
/// said of what one rank, or Strategy::NoShard, makes irrelevant.
std::vector<std::string> warnings(const ModuleDescription& description);

/// Gathers of fewer bytes take as long as this: 20 to 100 microseconds over
/// shared memory, TCP or NVLink alike.
inline constexpr std::int64_t kLatencyBytes = 256 * 1024;

/// Both as text: a line for each unit, section and parameter, then the totals,
/// then the warnings.
///
///     accordion::DeviceMesh mesh = …; fully_shard(net, mesh);
///     if (mesh.rank() == 0) std::cout << to_text(accordion::describe(net));
std::string to_text(const ModuleDescription& description);

}  // namespace accordion
