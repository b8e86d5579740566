// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>

#include "accordion/comm/rendezvous.h"
#include "accordion/train/metrics.h"
#include "accordion/train/train_config.h"

namespace accordion {

/// How a run ended.
struct TrainResult {
  std::filesystem::path run_folder;
  RunSummary summary;  ///< the same on every rank
};

/// Trains a model as the configuration says, as one of the ranks of
/// `rendezvous`, and writes the run folder. Rank 0 reports to standard output:
/// a live line on a terminal, whole lines elsewhere.
///
/// The loss of a microbatch is its sum over tokens divided by the target tokens
/// of the whole step over the number of ranks; as reductions average over
/// ranks, gradients come out as those of the mean over all tokens.
///
/// Requires  the same configuration on every rank
/// Comm      the collectives of fully_shard, and one small all-reduce a step,
///           outside of the time that is measured
/// Throws    std::invalid_argument for what the configuration got wrong,
///           std::runtime_error for the run folder or a loss that is not
///           finite, CommError
TrainResult train(const TrainConfig& config, const Rendezvous& rendezvous);

}  // namespace accordion
