// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "accordion/plan/strategy.h"

namespace accordion::plan {

/// Bytes of parameters, gradients and Adam state of one of `ranks` ranks, with
/// 16-bit parameters and gradients and 12 bytes of fp32 state each: 16 in all.
///
/// Source  Rajbhandari et al. 2020, arXiv:1910.02054, table 1
[[nodiscard]] double zero_paper_bytes(double params, int ranks,
                                      Sharding sharding);

/// What DeepSpeed's estimators of model states are asked.
struct DeepSpeedQuestion {
  double params = 0.0;
  double largest_layer_params = 0.0;  ///< stage 3 gathers one layer
  int gpus = 1;                       ///< of one host, which is all of them
  int stage = 3;                      ///< 2 or 3
  bool parameters_on_host = false;
  bool optimizer_on_host = false;
  /// Parameters are made cut, and never whole on the host.
  bool zero_init = true;
};

struct DeepSpeedAnswer {
  double gpu_bytes = 0.0;   ///< of one GPU
  double host_bytes = 0.0;  ///< of the host, half of it headroom
};

/// Their formulas: model states only, no activations.
///
/// Source  deepspeedai/DeepSpeed, docs/code-docs/source/memory.rst
[[nodiscard]] DeepSpeedAnswer deepspeed_estimate(
    const DeepSpeedQuestion& question);

}  // namespace accordion::plan
