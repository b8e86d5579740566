// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "accordion/data/sample_set.h"

namespace accordion {

/// In which order samples are read.
enum class SampleOrder : std::uint8_t {
  /// One walk through the data, that N ranks of batch b share like 1 rank of
  /// batch N * b: sample g of the run starts at token
  /// g * seq_len mod (tokens - seq_len - 1), or is row g mod rows of packed
  /// documents.
  Strided,
  /// Each sample once an epoch, in an order that each epoch has of its own.
  Shuffled,
};

/// Inputs and targets of one microbatch of one rank; the target of a token is
/// the token after it, or kNoTarget.
struct Batch {
  std::vector<std::int64_t> inputs;   ///< [batch_size, seq_len]
  std::vector<std::int64_t> targets;  ///< [batch_size, seq_len]

  /// `rows` samples whose targets do not count.
  static Batch without_targets(std::int64_t rows, std::int64_t seq_len);

  /// Where sample `index` is written.
  SampleRow row(std::int64_t index, std::int64_t seq_len);
  /// Targets that count.
  [[nodiscard]] std::int64_t num_targets() const;
};

struct BatchSamplerOptions {
  SampleOrder order = SampleOrder::Shuffled;
  std::int64_t batch_size = 1;  ///< samples per rank and microbatch, >= 1
  std::int64_t grad_accumulation = 1;  ///< microbatches of a step, >= 1
  int rank = 0;
  int world_size = 1;
  std::uint64_t seed = 0;  ///< of the shuffled order
  /// Where a resumed run goes on: its steps count from `first_step`, which
  /// begins with sample `first_sample` of the run.
  std::int64_t first_step = 0;
  std::int64_t first_sample = 0;
};

/// How far a run has come in the data.
struct EpochPosition {
  std::int64_t epoch = 0;   ///< counted from 0
  std::int64_t sample = 0;  ///< of the epoch, in the order of that epoch
};

/// Which samples a step reads. Stateless: any position is computed in O(1), so
/// a run resumes anywhere without reading what came before.
///
/// The g-th sample of the run, counted over all ranks, is
///     g = ((step * grad_accumulation + microbatch) * world + rank) * batch + i
/// so the same global batches are drawn whatever the world size. A run that is
/// resumed counts on from the samples that were read, so it goes through the
/// same order with other ranks and batches too.
///
/// Nothing is dropped: where an epoch ends within a step, the step's other
/// samples are the first ones of the next epoch.
class BatchSampler {
 public:
  /// `samples` must outlive the sampler.
  ///
  /// Throws std::invalid_argument when an option is out of range
  BatchSampler(const SampleSet& samples, const BatchSamplerOptions& options);

  /// The same samples from sample `first_sample` on, which step `first_step`
  /// begins with.
  ///
  /// Throws std::invalid_argument where one is negative
  void continue_from(std::int64_t first_step, std::int64_t first_sample);

  /// The samples of one microbatch of this rank.
  [[nodiscard]] Batch batch(std::int64_t step, std::int64_t microbatch) const;

  /// Position in the sample set of the g-th sample of the run.
  [[nodiscard]] std::int64_t position_of(std::int64_t global_sample) const;

  [[nodiscard]] std::int64_t samples_per_epoch() const {
    return samples_->size();
  }
  /// Samples of a step, over all ranks and microbatches.
  [[nodiscard]] std::int64_t samples_per_step() const;
  /// Samples of the run that were read before a step.
  [[nodiscard]] std::int64_t samples_before(std::int64_t step) const;
  /// Where the first sample of a step lies.
  [[nodiscard]] EpochPosition epoch_of(std::int64_t step) const;
  /// The fewest steps in which each sample is seen `epochs` times, those before
  /// first_step included.
  [[nodiscard]] std::int64_t steps_of_epochs(std::int64_t epochs) const;

 private:
  const SampleSet* samples_;
  BatchSamplerOptions options_;
};

}  // namespace accordion
