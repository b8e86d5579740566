// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include "accordion/fsdp/wrap_policy.h"
#include "accordion/module/init_plan.h"
#include "accordion/offload/offload_target.h"

namespace accordion {

/// What is sharded over the mesh's axis "shard". docs/algorithms.md has the
/// bytes and collectives of each. On a mesh with an axis "replicate" as well,
/// every strategy is its hybrid: sharded inside, averaged over replicas.
enum class Strategy {
  /// Parameters, gradients and optimizer state (ZeRO-3).
  FullShard,
  /// The same, but whole from forward to backward (ZeRO-2 as in FSDP2).
  ShardGradOp,
  /// Optimizer state, and the copy that it updates; whole parameters and whole
  /// gradients over all microbatches of a step (ZeRO-1).
  ShardOptimizer,
  /// Nothing; gradients are all-reduced (DDP).
  NoShard,
};

/// What happens to gradients at the end of a backward that is not the last of
/// its step (set_is_last_backward).
enum class Accumulation {
  /// Reduced each time, added to the sharded `.grad()`.
  Sharded,
  /// Kept whole in the reduction's dtype; nothing is communicated.
  Unsharded,
  /// Reduced over the shard axis each time, over replicas the last time.
  DeferredAllReduce,
};

/// Precision of computation and communication. Sharded parameters, gradients
/// and optimizer state keep the dtype in which the module was made.
struct MixedPrecision {
  /// Of unsharded parameters and so of computation; unset: the stored dtype.
  /// Batch and instance norms keep theirs, as their statistics do.
  std::optional<c10::ScalarType> param_dtype = std::nullopt;
  /// To which the sum of the ranks' gradients is rounded, and in which whole
  /// gradients are added up over microbatches; unset: the stored dtype. The sum
  /// over ranks itself is taken in fp32. fp16, here or above, needs GradScaler.
  std::optional<c10::ScalarType> reduce_dtype = std::nullopt;
  /// To which a unit's floating-point outputs are cast; unset: not cast.
  std::optional<c10::ScalarType> output_dtype = std::nullopt;
  /// Casts a unit's floating-point inputs to param_dtype.
  bool cast_forward_inputs = true;
  /// To which floating-point buffers are cast, once, less those of norms,
  /// whose running statistics need their range; unset: not cast.
  std::optional<c10::ScalarType> buffer_dtype = std::nullopt;
};

/// How one parameter is placed.
enum class ParameterPlacement {
  Shard,      ///< cut over the shard axis
  Replicate,  ///< whole on every rank, its gradients all-reduced
  Ignore,     ///< left alone: the user keeps ranks equal
};

/// Which units keep no activations: forward saves a unit's arguments alone and
/// is called again when backward comes to it ([Note: activation
/// checkpointing]), in the same gather. Costs about a third more computation,
/// and is no choice for the root, between whose forward and backward nothing
/// lies that the memory would serve.
struct ActivationCheckpointing {
  WrapPolicy units = {};   ///< which units; default: all but the root
  std::int64_t every = 1;  ///< of those, every n-th in order of registration
  /// Keeps the arguments that are saved out of memory too, as far as gradients
  /// go through them: written behind in forward, read ahead in backward, in a
  /// store of their own. Unset: in memory.
  std::optional<OffloadTarget> offload = std::nullopt;
};

/// What of a rank's shards is kept out of memory, in blocks of a store that
/// pass through a few buffers as they are used. AdamWOptions::offload does the
/// same for moments. Parameters that all ranks hold whole stay in memory.
///
/// Between passes the pieces and `.grad()` are there as without: in mappings of
/// the store, which take no memory until they are touched. accordion::AdamW
/// steps through the buffers; other optimizers work, through the mappings.
///
/// Of a module on a CUDA device, `to` is offload_to_host, and both parts are
/// set: shards lie in pinned memory, where the optimizer steps them on the CPU
/// and from where gathers read them ([Note: shards on the host]). Outside of
/// its unit's forward and backward a parameter is then a tensor of the CPU.
struct OffloadPolicy {
  OffloadTarget to;
  /// Of gradients, what is reduced is written behind, and read when it is added
  /// to or stepped with.
  bool gradients = true;
  /// Of parameters, each unit's shard is read ahead of its all-gather, forward
  /// and backward, and AdamW's step reads it and writes it.
  bool parameters = false;
};

/// What a placement callback sees of a parameter.
struct ParameterInfo {
  std::string_view name;  ///< FQN
  c10::IntArrayRef shape;
  bool requires_grad = true;
};

/// Options of fully_shard. Immutable once sharded; what may change between
/// steps is in fsdp/controls.h.
struct FsdpOptions {
  Strategy strategy = Strategy::FullShard;
  MixedPrecision precision = {};
  /// Frees a unit's unsharded parameters between forward and backward. Unset:
  /// true under FullShard for every unit but the root, which backward needs at
  /// once; else false.
  std::optional<bool> reshard_after_forward = std::nullopt;
  /// Where units are resharded after forward, to how many neighbouring ranks,
  /// which then hold one copy until backward and gather among themselves, as
  /// when they share a host (hpZ). Divides the shard axis. 0: all ranks.
  int reshard_to_ranks = 0;
  /// Whether each pass of one kind calls the units that the first one called,
  /// on some rank at least, in that order. Passes then follow a schedule, and a
  /// rank that leaves a unit out joins the others. False where data decides, as
  /// with routing: ranks agree before each unit on which one is next, at the
  /// cost of a small all-gather and without gathering ahead.
  bool static_graph = true;
  /// Units gathered ahead of the one that computes, forward and backward;
  /// 0 gathers each when it is needed.
  int prefetch = 1;
  /// Most bytes gathered ahead; 0: as many as `prefetch` says.
  std::int64_t prefetch_bytes = 0;
  /// Unset: Unsharded under ShardOptimizer, else Sharded.
  std::optional<Accumulation> accumulation = std::nullopt;
  /// Whether parameters stay whole from one microbatch to the next. Unset: true
  /// under ShardOptimizer only.
  std::optional<bool> keep_parameters_across_microbatches = std::nullopt;
  /// Whether the optimizer steps each unit in backward, as soon as its gradient
  /// is reduced, and that is freed: sharded gradients of one unit or two exist
  /// at a time, not of all. accordion::StepInBackward, made after the
  /// optimizer, does that; `.grad()` is undefined afterwards. Gradients of
  /// several microbatches can only be added up whole (Accumulation::Unsharded).
  bool step_in_backward = false;
  /// Unset: shards are in memory. Beside step_in_backward, `gradients` has to
  /// be false: those do not stay, so that there is nothing to offload.
  std::optional<OffloadPolicy> offload = std::nullopt;
  /// What sums of gradients over ranks are divided by; unset: the number of
  /// ranks, the mean. 1 where the loss is divided by a global count already.
  std::optional<double> gradient_divide_factor = std::nullopt;
  /// Parameters of fewer elements are replicated: small ones cost more latency
  /// than memory.
  std::int64_t min_shard_numel = 0;
  /// Decides by name and shape; unset: min_shard_numel decides.
  std::function<ParameterPlacement(const ParameterInfo&)> placement = {};
  /// Whether units whose parameters are computed with in the stored dtype are
  /// gathered where their shards lie, if ranks share memory (backend "shm"):
  /// nothing is copied, and no slot is held ([Note: gathers in place]). Whole
  /// parameters are then the shards of all ranks, so that what a forward writes
  /// to its parameters stays. False for modules that do that, as with weights
  /// that are normalised or clipped there: what they write is gone when the
  /// unit is resharded.
  bool gather_in_place = true;
  /// The same for units that compute in another dtype: beside the shards, a
  /// copy in it lies in memory that all ranks map, from step to step, in place
  /// of slots. A gather writes it once a pass, and not at all where AdamW did
  /// with its step: so list pieces anew (settle, local_parameters) before you
  /// write to them between that step and the next pass. Memory: a whole copy,
  /// of which each rank of the host has its part.
  bool copies_in_place = false;
  /// A module sharded before over the same mesh, whose communication buffers
  /// this one uses too: for several roots that seldom need theirs at the same
  /// time, such as the stages of a pipeline or the nets of a GAN. Null: its
  /// own.
  const torch::nn::Module* share_slots_with = nullptr;
  /// Which of the declared units become FSDP units; default: all.
  WrapPolicy wrap = {};
  /// Unset: every unit keeps its activations.
  std::optional<ActivationCheckpointing> activation_checkpointing =
      std::nullopt;
  /// First values of parameters on meta ([Note: materialising while sharding]).
  InitOptions init = {};
  /// Compares the parameters' values across ranks. Off for a module whose
  /// values are assigned afterwards, piece by piece, through local_parameters.
  bool verify_parameters = true;
  /// Takes the values of rank 0 instead of comparing.
  bool broadcast_parameters = false;
};

/// FsdpOptions::reshard_after_forward of a unit, where it is unset too. The
/// root is needed again as soon as backward begins; without sharding, freeing a
/// unit would only repeat its cast.
[[nodiscard]] inline bool reshards_after_forward(const FsdpOptions& options,
                                                 bool is_root) {
  return options.reshard_after_forward.value_or(
      options.strategy == Strategy::FullShard &&
      options.reshard_to_ranks != 1 && !is_root);
}

/// FsdpOptions::accumulation, where it is unset too.
[[nodiscard]] inline Accumulation accumulation_of(const FsdpOptions& options) {
  return options.accumulation.value_or(
      options.strategy == Strategy::ShardOptimizer ? Accumulation::Unsharded
                                                   : Accumulation::Sharded);
}

/// FsdpOptions::keep_parameters_across_microbatches, where it is unset too.
[[nodiscard]] inline bool keeps_parameters(const FsdpOptions& options) {
  return options.keep_parameters_across_microbatches.value_or(
      options.strategy == Strategy::ShardOptimizer);
}

}  // namespace accordion
