// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string_view>

namespace accordion::plan {

/// In what matrix products are done.
enum class ComputeType : std::uint8_t { Fp32, Fp16, Bf16, Fp8 };

/// The types of a step, in bytes an element.
struct Precision {
  ComputeType compute = ComputeType::Bf16;
  int parameter_bytes = 4;  ///< of the parameters that are stored
  /// A 4-byte copy that the optimizer steps, beside stored parameters of 2.
  bool master_copy = false;
  int gather_bytes = 2;    ///< of parameters on their way to a computation
  int gradient_bytes = 4;  ///< of gradients that wait for the optimizer
  int reduce_bytes = 4;    ///< of gradients on their way between ranks
  /// Of sharded gradients on their way between replicas; 0: reduce_bytes.
  int replica_bytes = 0;

  [[nodiscard]] int bytes_between_replicas() const {
    return replica_bytes > 0 ? replica_bytes : reduce_bytes;
  }
  /// Of what goes between ranks in values of `bytes` each.
  [[nodiscard]] ComputeType wire_type(int bytes) const {
    if (bytes == 2) {
      return compute == ComputeType::Fp16 ? compute : ComputeType::Bf16;
    }
    return bytes == 1 ? ComputeType::Fp8 : ComputeType::Fp32;
  }
  bool operator==(const Precision&) const = default;
};

enum class OptimizerType : std::uint8_t {
  AdamW,      ///< two moments, 4 bytes each
  AdamWBf16,  ///< two moments, 2 bytes each
  AdamW8bit,  ///< two moments, 1 byte each and 8 bytes a block of 256
  Momentum,   ///< one moment, 4 bytes
  Sgd,        ///< no state
};
[[nodiscard]] std::string_view to_string(OptimizerType optimizer);
/// Bytes of state for one parameter; a master copy is not part of it.
[[nodiscard]] double state_bytes(OptimizerType optimizer);

/// What of a layer's activations is computed again in backward.
enum class Checkpointing : std::uint8_t {
  None,
  /// Outputs of attention, of communication and of every second product are
  /// kept, the rest is computed again (torchtitan's per-op policy).
  Selective,
  Full,  ///< only the layer's input is kept
  /// What products return is kept; norms, activation and attention between
  /// them, whose backward keeps their inputs, are computed again (ours,
  /// ops/operand.h).
  BetweenProducts,
};

enum class AttentionKind : std::uint8_t {
  Fused,    ///< never writes the scores (FlashAttention, cuDNN)
  Unfused,  ///< scores and probabilities are written and kept
};

/// What a step computes, besides how it is cut over devices.
struct Training {
  std::int64_t seq_len = 2048;
  std::int64_t micro_batch = 1;  ///< sequences a data rank takes at a time
  /// Microbatches a step; with a pipeline, those in the pipeline.
  std::int64_t grad_accum = 1;
  Precision precision;
  OptimizerType optimizer = OptimizerType::AdamW;
  bool step_in_backward = false;  ///< gradients are freed unit by unit
  Checkpointing checkpointing = Checkpointing::None;
  /// Of the layers, those whose activations are checkpointed.
  double checkpointed_share = 1.0;
  AttentionKind attention = AttentionKind::Fused;
  /// The loss is computed over this many parts of the tokens in turn, so that
  /// only one part's logits exist; 1: at once.
  std::int64_t loss_chunks = 1;
  bool compiled = false;  ///< operators over elements are fused by a compiler

  bool operator==(const Training&) const = default;
};

}  // namespace accordion::plan
