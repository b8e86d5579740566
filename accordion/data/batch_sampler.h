// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace accordion {

/// In which order windows of the text are read.
enum class SampleOrder : std::uint8_t {
  /// Sample i of step s on rank r starts at byte
  /// ((s * world + r) * batch + i) * seq mod (bytes - seq - 1): one walk
  /// through
  /// the text that N ranks of batch b share like 1 rank of batch N * b.
  Strided,
  /// Packed windows, each once an epoch, in an order and with a phase offset
  /// that differ from epoch to epoch.
  Shuffled,
};

/// Inputs and targets of one microbatch of one rank; the target of a byte is
/// the byte after it.
struct Batch {
  std::vector<std::int64_t> inputs;   ///< [batch_size, seq_len]
  std::vector<std::int64_t> targets;  ///< [batch_size, seq_len]
};

struct BatchSamplerOptions {
  SampleOrder order = SampleOrder::Shuffled;
  std::int64_t seq_len = 128;   ///< tokens of a sample, >= 1
  std::int64_t batch_size = 1;  ///< samples per rank and microbatch, >= 1
  std::int64_t grad_accumulation = 1;  ///< microbatches of a step, >= 1
  int rank = 0;
  int world_size = 1;
  std::uint64_t seed = 0;  ///< of the shuffled order
};

/// Where a step's samples lie in the text. Stateless: any position is computed
/// in O(1), so a run resumes anywhere without reading what came before.
///
/// The g-th sample of the run, counted over all ranks, is
///     g = ((step * grad_accumulation + microbatch) * world + rank) * batch + i
/// so the same global batches are drawn whatever the world size.
class BatchSampler {
 public:
  /// `text` must outlive the sampler.
  ///
  /// Throws std::invalid_argument when the text is too short for seq_len, or an
  ///        option is out of range
  BatchSampler(std::span<const std::uint8_t> text,
               const BatchSamplerOptions& options);

  /// The samples of one microbatch of this rank.
  [[nodiscard]] Batch batch(std::int64_t step, std::int64_t microbatch) const;

  /// First byte of the g-th sample of the run.
  [[nodiscard]] std::int64_t start_of(std::int64_t global_sample) const;

  /// Samples of an epoch: how many windows of seq_len the text holds.
  [[nodiscard]] std::int64_t samples_per_epoch() const { return num_windows_; }

 private:
  [[nodiscard]] std::int64_t shuffled_start(std::int64_t global_sample) const;

  std::span<const std::uint8_t> text_;
  BatchSamplerOptions options_;
  std::int64_t num_windows_;
};

/// Copies the window of seq_len + 1 bytes at `start` into row `row`.
void copy_window(std::span<const std::uint8_t> text, std::int64_t start,
                 std::int64_t seq_len, std::int64_t row, Batch& batch);

}  // namespace accordion
