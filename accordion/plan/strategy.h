// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string_view>

namespace accordion::plan {

/// What of a model's state is cut among the data-parallel ranks.
///
/// // [Note: accountings]
/// P parameters, N ranks. Two projects call different things ZeRO-2: FSDP2's
/// shard_grad_op keeps parameters cut between steps and whole from forward to
/// backward; DeepSpeed keeps a whole 16-bit copy at all times.
enum class Sharding : std::uint8_t {
  NoShard,         ///< all whole on each rank
  ShardOptimizer,  ///< ZeRO-1: optimizer state and master copy
  ShardGradOp,     ///< ZeRO-2 as in FSDP2
  DeepSpeedZero2,  ///< optimizer and gradients; 16-bit parameters stay whole
  FullShard,       ///< ZeRO-3
};
[[nodiscard]] std::string_view to_string(Sharding sharding);
/// Throws std::invalid_argument that names the nearest one known
[[nodiscard]] Sharding parse_sharding(std::string_view name);

/// Whether each rank has all parameters at all times besides what it owns:
/// ZeRO-1, and ZeRO-2 as DeepSpeed has it.
[[nodiscard]] bool keeps_whole_copy(Sharding sharding);

/// Where state lies that is not on the device.
enum class OffloadTo : std::uint8_t { None, Host, Disk };

struct Offload {
  OffloadTo parameters = OffloadTo::None;  ///< the sharded ones
  OffloadTo optimizer = OffloadTo::None;   ///< state, master copy, gradients
  /// State comes to the device for its step and goes back (a paged optimizer),
  /// instead of being stepped by the host's processors.
  bool step_on_device = false;
  OffloadTo activations = OffloadTo::None;  ///< what checkpointing keeps
  /// Sharded gradients, where they wait for a step on the device; one by the
  /// host's processors has them anyway.
  OffloadTo gradients = OffloadTo::None;

  bool operator==(const Offload&) const = default;
};

/// How a model is cut over the devices of a cluster.
///
/// dp_replicate * dp_shard * context * tensor * pipeline is the number of
/// devices. Context-parallel ranks shard parameters too: the ranks that share
/// one copy are dp_shard * context.
struct Strategy {
  Sharding sharding = Sharding::FullShard;
  int dp_replicate = 1;  ///< copies; above 1 with sharding: hybrid
  int dp_shard = 1;      ///< ranks that one copy is cut over
  /// hpZ: backward gathers from a second copy, cut over this many ranks of a
  /// host; 0: from the first one.
  int secondary_shard = 0;
  int tensor = 1;
  /// Norms and residuals cut along the sequence among the tensor ranks.
  bool sequence_parallel = true;
  /// Tensor collectives in parts, under the products they belong to.
  bool overlap_tensor = false;
  int pipeline = 1;
  /// 1: one forward, one backward in turn; above: interleaved, each rank has
  /// this many stages, and waits less.
  int stages_per_rank = 1;
  int context = 1;
  /// Hybrid: replicas average gradients at the last microbatch only, instead of
  /// at each.
  bool defer_all_reduce = false;
  int prefetch = 1;  ///< units gathered ahead (schedule/step_schedule.h)
  Offload offload;

  /// Ranks that one copy of the state is cut over, and that average gradients.
  [[nodiscard]] int shard_ranks() const { return dp_shard * context; }
  [[nodiscard]] int data_ranks() const { return dp_shard * dp_replicate; }
  [[nodiscard]] std::int64_t num_gpus() const {
    return std::int64_t{dp_replicate} * dp_shard * context * tensor * pipeline;
  }
  bool operator==(const Strategy&) const = default;
};

}  // namespace accordion::plan
