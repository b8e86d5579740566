// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <string>

#include "accordion/comm/rendezvous.h"
#include "accordion/train/metrics.h"
#include "accordion/train/train_config.h"

namespace accordion {

/// How a run ended.
struct TrainResult {
  std::filesystem::path run_folder;
  RunSummary summary;  ///< the same on every rank
};

/// Throws what train() would throw of model, tokenizer, data and mesh before
/// ranks meet; `rendezvous` is that of any of them. Cheap.
///
/// Throws  std::invalid_argument
void check_run(const TrainConfig& config, const Rendezvous& rendezvous);

/// Trains a model as the configuration says, as one of the ranks of
/// `rendezvous`, and writes the run folder. `resume` says whether a run goes
/// on, and from where: see find_run_start. Rank 0 reports to standard output:
/// a live line on a terminal, whole lines elsewhere.
///
/// The loss of a microbatch is its sum over targets that count, divided by the
/// number of these in the whole step, of all ranks and microbatches, over the
/// number of ranks; as reductions average over ranks, gradients come out as
/// those of the mean over all targets, however they lie.
///
/// Requires  the same configuration on every rank
/// Comm      that of open_data_together and fully_shard, and one small
///           all-reduce a step, outside of the time that is measured; with
///           packed documents another one, that counts targets
/// Throws    std::invalid_argument for what the configuration got wrong,
///           std::runtime_error for the run folder, or a loss or gradient
///           that is not finite (train.nonfinite), CommError
TrainResult train(const TrainConfig& config, const Rendezvous& rendezvous,
                  const std::string& resume = {});

}  // namespace accordion
