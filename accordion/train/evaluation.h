// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "accordion/data/batch_sampler.h"

namespace accordion {

/// A target that does not count.
inline constexpr std::int64_t kNoTarget = -100;

struct EvaluationOptions {
  std::int64_t seq_len = 128;   ///< tokens of a window
  std::int64_t sequences = 64;  ///< windows at most, of all ranks together
  std::int64_t batch_size = 1;  ///< windows per rank and forward
  int rank = 0;
  int world_size = 1;
};

/// The windows of the held-out text on which a run is measured: always the
/// same, evenly spread, dealt to the ranks in turn. Every rank has equally many
/// batches, as each forward is a collective; where the windows do not divide,
/// rows at the end have the target kNoTarget throughout.
///
/// Throws std::invalid_argument when the held-out text is too short for one
///        window
std::vector<Batch> evaluation_batches(std::span<const std::uint8_t> text,
                                      const EvaluationOptions& options);

/// Windows that evaluation_batches draws from a text of `bytes` bytes.
[[nodiscard]] std::int64_t evaluation_windows(std::int64_t bytes,
                                              const EvaluationOptions& options);

}  // namespace accordion
