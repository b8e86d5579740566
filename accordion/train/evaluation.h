// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "accordion/data/batch_sampler.h"
#include "accordion/data/sample_set.h"

namespace accordion {

struct EvaluationOptions {
  std::int64_t sequences = 64;  ///< samples at most, of all ranks together
  std::int64_t batch_size = 1;  ///< samples per rank and forward
  int rank = 0;
  int world_size = 1;
};

/// The held-out samples on which a run is measured: always the same, evenly
/// spread, dealt to the ranks in turn. Every rank has equally many batches, as
/// each forward is a collective; where the samples do not divide, rows at the
/// end have the target kNoTarget throughout.
std::vector<Batch> evaluation_batches(const SampleSet& samples,
                                      const EvaluationOptions& options);

}  // namespace accordion
