// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/evaluation.h"

#include <algorithm>

namespace accordion {

std::vector<Batch> evaluation_batches(const SampleSet& samples,
                                      const EvaluationOptions& options) {
  const std::int64_t count = std::min(samples.size(), options.sequences);
  const std::int64_t rows_of_all = options.world_size * options.batch_size;
  std::vector<Batch> batches;
  for (std::int64_t first = 0; first < count; first += rows_of_all) {
    Batch& batch = batches.emplace_back(
        Batch::without_targets(options.batch_size, samples.seq_len()));
    for (std::int64_t row = 0; row < options.batch_size; ++row) {
      const std::int64_t index =
          first + options.rank * options.batch_size + row;
      if (index < count) {
        samples.read(samples.spread(index, count),
                     batch.row(row, samples.seq_len()));
      }
    }
  }
  return batches;
}

}  // namespace accordion
