// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/evaluation.h"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

namespace accordion {

std::int64_t evaluation_windows(std::int64_t bytes,
                                const EvaluationOptions& options) {
  return std::min((bytes - 1) / options.seq_len, options.sequences);
}

std::vector<Batch> evaluation_batches(std::span<const std::uint8_t> text,
                                      const EvaluationOptions& options) {
  const auto bytes = static_cast<std::int64_t>(text.size());
  if (bytes < options.seq_len + 1) {
    throw std::invalid_argument(fmt::format(
        "[evaluation] The held-out text is too short: {} bytes, but seq_len {} "
        "needs at least {}. Raise data.validation_fraction, use a longer text, "
        "or set eval.every = 0.",
        bytes, options.seq_len, options.seq_len + 1));
  }
  const std::int64_t windows = evaluation_windows(bytes, options);
  const std::int64_t rows_of_all = options.world_size * options.batch_size;
  const std::int64_t last_start = bytes - options.seq_len - 1;
  std::vector<Batch> batches;
  for (std::int64_t first = 0; first < windows; first += rows_of_all) {
    Batch& batch = batches.emplace_back();
    batch.inputs.assign(
        static_cast<std::size_t>(options.batch_size * options.seq_len), 0);
    batch.targets.assign(batch.inputs.size(), kNoTarget);
    for (std::int64_t row = 0; row < options.batch_size; ++row) {
      const std::int64_t window =
          first + options.rank * options.batch_size + row;
      if (window < windows) {
        const std::int64_t start =
            windows > 1 ? window * last_start / (windows - 1) : 0;
        copy_window(text, start, options.seq_len, row, batch);
      }
    }
  }
  return batches;
}

}  // namespace accordion
