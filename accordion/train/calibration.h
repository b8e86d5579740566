// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "accordion/comm/rendezvous.h"
#include "accordion/plan/cluster.h"

namespace accordion {

struct CalibrationOptions {
  double seconds_each = 0.06;  ///< for one operator of one size, twice
  /// Sizes of more are left out: forward and backward of a product, a layer.
  double most_flops = 60e9;
};

/// Measures this host, as the ranks of `rendezvous` on it: what the planner
/// must know to price a run of as many ranks here.
///
/// // [Note: calibration]
/// All ranks measure at once, each on its threads, because memory and caches
/// are shared. Products, attention and the optimizer's step are timed as the
/// operators of a run, forward and backward together, over operands that the
/// caches do not hold all of. Then whole layers are timed; what those take
/// beyond their products and attention is what everything else costs (norms,
/// rotation, activation, sums, and what autograd spends), as bytes/s of the
/// elementwise operators that the planner counts. Collectives are timed over
/// shared memory, and over Gloo, as a second host would be joined.
///
/// Takes   a minute and a half
/// Comm    some hundred collectives
/// Memory  500 MiB a rank
/// Returns the same cluster on every rank
plan::Cluster calibrate(const Rendezvous& rendezvous,
                        const CalibrationOptions& options = {});

}  // namespace accordion
