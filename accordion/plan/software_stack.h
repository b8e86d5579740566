// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace accordion::plan {

/// A program that trains: what its operators move and allocate, which neither
/// the model nor the device decides.
///
/// Units  bytes, seconds
struct SoftwareStack {
  std::string name;  ///< "accordion", "torchtitan", "llm-foundry", …
  // Known from its sources.
  /// Norms, rotations and activations are one kernel each, rather than one for
  /// each step of their formula.
  bool fused_elementwise = true;
  /// Gathered parameters are copied out of a buffer, gradients into one
  /// (FSDP2); else tensors are views of one flat buffer (FSDP1) or of slots
  /// (ours).
  bool copies_around_collectives = false;
  /// Where nothing is sharded, parameters of another dtype than that of
  /// computation and gradients pass through slots all the same (ours).
  bool lone_ranks_use_slots = false;
  /// What is offloaded is read ahead of its use and written behind it, beside
  /// the optimizer's pass too (ours).
  bool reads_offloaded_ahead = false;
  /// Ranks of a host without devices gather parameters where the shards lie, in
  /// memory that all of them map, if they compute in the stored dtype (ours).
  bool gathers_in_place = false;
  /// If they do not, where copies lie that stay from step to step.
  bool copies_in_place = false;
  /// Collectives of gathers and reductions have streams of their own.
  bool separate_streams = true;
  /// What is computed again ends where nothing more is needed: a layer's last
  /// product is not (torch.utils.checkpoint without reentrancy).
  bool recompute_stops_early = true;
  /// The loss is one kernel that reads 16-bit logits and writes their gradient
  /// over them; else it is made of operators in fp32.
  bool fused_loss = false;
  /// A loss in parts keeps the log-probabilities of all of them for backward;
  /// else a part's gradient is made with its loss.
  bool loss_parts_are_kept = false;
  /// Attention's kernels overlap their loads, products and exponentials on
  /// devices that can (cuDNN, FlashAttention-3).
  bool specialized_attention = false;
  // Fitted, see docs/planner_accuracy.md.
  /// Attention's rate relative to GpuType::attention_efficiency.
  double attention_factor = 1.0;
  /// Time a kernel costs whatever its size, on the device.
  double launch_s = 0.0;
  /// Of what is allocated that an allocator holds besides: blocks too small to
  /// be used again.
  double allocator_overhead = 0.0;

  bool operator==(const SoftwareStack&) const = default;
};

[[nodiscard]] std::span<const SoftwareStack> software_stacks();

/// Throws std::invalid_argument that names the nearest one known
[[nodiscard]] const SoftwareStack& find_stack(std::string_view name);

}  // namespace accordion::plan
