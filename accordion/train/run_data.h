// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "accordion/data/batch_sampler.h"
#include "accordion/data/corpus.h"
#include "accordion/train/train_config.h"

namespace accordion {

/// What one rank of a run reads.
struct RunData {
  Corpus corpus;  ///< what the sampler draws from; outlives it
  BatchSampler sampler;
  std::vector<Batch> validation;  ///< empty where eval.every is 0
};

/// Opens the text of a run and cuts it as the configuration says.
///
/// Throws std::invalid_argument when the text cannot be read or is too short
RunData open_data(const TrainConfig& config, int rank, int world_size);

/// Target tokens of one step on one rank.
std::int64_t tokens_per_rank(const TrainConfig& config);

}  // namespace accordion
