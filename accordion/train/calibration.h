// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "accordion/comm/rendezvous.h"
#include "accordion/plan/cluster.h"

namespace accordion {

struct CalibrationOptions {
  double seconds_each = 0.03;     ///< for one operator of one size
  double seconds_of_steps = 0.4;  ///< for the steps of one model
  /// Sizes of more are left out: forward and backward of a product, a model.
  double most_flops = 200e9;
  /// Folder on the disk that runs offload to; empty: the disk is not measured.
  std::string scratch;
};

/// Measures this host, as the ranks of `rendezvous` on it: what the planner
/// must know to price a run of as many ranks here.
///
/// // [Note: calibration]
/// All ranks measure at once, each on its threads, because memory and caches
/// are shared. Products and attention are timed alone, forward and backward
/// together, over operands that the caches do not hold all of. Then whole steps
/// of small models are, in each dtype: what their computation takes beside what
/// the planner makes of its operators says what everything else costs (norms,
/// rotation, activation, autograd, operands that are cold), and by how much
/// operators measured alone mislead. Of the same steps are the rates of
/// collectives and of the optimizer, and of one more, with its moments
/// offloaded, that of the disk. Link rates stand for groups of other sizes:
/// over shared memory, and over Gloo, as a second host would be joined.
///
/// Takes   a minute
/// Comm    some hundred collectives
/// Memory  1.5 GiB a rank
/// Returns the same cluster on every rank
plan::Cluster calibrate(const Rendezvous& rendezvous,
                        const CalibrationOptions& options = {});

}  // namespace accordion
