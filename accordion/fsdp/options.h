// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>

#include <c10/core/ScalarType.h>

namespace accordion {

/// What is sharded. docs/algorithms.md has the bytes and collectives of each.
enum class Strategy {
  FullShard,  ///< parameters, gradients and optimizer state (ZeRO-3)
  NoShard,    ///< nothing; gradients are all-reduced (DDP)
};

/// Precision of computation and communication. Sharded parameters, gradients
/// and optimizer state keep the dtype in which the module was made.
struct MixedPrecision {
  /// Of unsharded parameters and so of computation; unset: the stored dtype.
  std::optional<c10::ScalarType> param_dtype = std::nullopt;
  /// To which the sum of the ranks' gradients is rounded; unset: the stored
  /// dtype. The sum itself is taken in fp32.
  std::optional<c10::ScalarType> reduce_dtype = std::nullopt;
  /// To which a unit's floating-point outputs are cast; unset: not cast.
  std::optional<c10::ScalarType> output_dtype = std::nullopt;
  /// Casts a unit's floating-point inputs to param_dtype.
  bool cast_forward_inputs = true;
};

/// Options of fully_shard. Immutable once sharded.
struct FsdpOptions {
  Strategy strategy = Strategy::FullShard;
  MixedPrecision precision = {};
  /// Frees a unit's unsharded parameters between forward and backward. Unset:
  /// true for every unit but the root, which backward needs at once.
  std::optional<bool> reshard_after_forward = std::nullopt;
  /// Units gathered ahead of the one that computes, forward and backward;
  /// 0 gathers each when it is needed.
  int prefetch = 1;
  /// Compares the parameters' values across ranks. Off for a module whose
  /// values are assigned afterwards, piece by piece, through local_parameters.
  bool verify_parameters = true;
};

}  // namespace accordion
