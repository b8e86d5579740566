// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/data/batch_sampler.h"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "accordion/data/permutation.h"

namespace accordion {
namespace {

void check_at_least_one(std::int64_t value, const char* name) {
  if (value < 1) {
    throw std::invalid_argument(fmt::format(
        "[BatchSampler] {} is {}; it must be at least 1.", name, value));
  }
}

void check(const BatchSamplerOptions& options) {
  check_at_least_one(options.batch_size, "batch_size");
  check_at_least_one(options.grad_accumulation, "grad_accumulation");
  check_at_least_one(options.world_size, "world_size");
  if (options.first_step < 0 || options.first_sample < 0) {
    throw std::invalid_argument(fmt::format(
        "[BatchSampler] first_step is {} and first_sample {}; give 0 or more.",
        options.first_step, options.first_sample));
  }
  if (options.rank < 0 || options.rank >= options.world_size) {
    throw std::invalid_argument(
        fmt::format("[BatchSampler] rank is {}; with world_size {} it must be "
                    "from 0 to {}.",
                    options.rank, options.world_size, options.world_size - 1));
  }
}

}  // namespace

Batch Batch::without_targets(std::int64_t rows, std::int64_t seq_len) {
  const auto numel = static_cast<std::size_t>(rows * seq_len);
  return {.inputs = std::vector<std::int64_t>(numel, 0),
          .targets = std::vector<std::int64_t>(numel, kNoTarget)};
}

SampleRow Batch::row(std::int64_t index, std::int64_t seq_len) {
  const auto begin = static_cast<std::size_t>(index * seq_len);
  const auto length = static_cast<std::size_t>(seq_len);
  return {.inputs = std::span(inputs).subspan(begin, length),
          .targets = std::span(targets).subspan(begin, length)};
}

std::int64_t Batch::num_targets() const {
  return static_cast<std::int64_t>(targets.size()) -
         std::ranges::count(targets, kNoTarget);
}

BatchSampler::BatchSampler(const SampleSet& samples,
                           const BatchSamplerOptions& options)
    : samples_(&samples), options_(options) {
  check(options);
}

void BatchSampler::continue_from(std::int64_t first_step,
                                 std::int64_t first_sample) {
  BatchSamplerOptions options = options_;
  options.first_step = first_step;
  options.first_sample = first_sample;
  check(options);
  options_ = options;
}

Batch BatchSampler::batch(std::int64_t step, std::int64_t microbatch) const {
  const std::int64_t rows = options_.batch_size;
  Batch batch = Batch::without_targets(rows, samples_->seq_len());
  const std::int64_t first =
      samples_before(step) +
      (microbatch * options_.world_size + options_.rank) * rows;
  for (std::int64_t row = 0; row < rows; ++row) {
    samples_->read(position_of(first + row),
                   batch.row(row, samples_->seq_len()));
  }
  return batch;
}

std::int64_t BatchSampler::position_of(std::int64_t global_sample) const {
  if (options_.order == SampleOrder::Strided) {
    return samples_->strided(global_sample);
  }
  const std::int64_t size = samples_->size();
  const std::int64_t epoch = global_sample / size;
  const std::uint64_t seed =
      mix_bits(options_.seed ^ mix_bits(static_cast<std::uint64_t>(epoch)));
  return samples_->in_epoch(Permutation(size, seed)(global_sample % size),
                            seed);
}

std::int64_t BatchSampler::samples_per_step() const {
  return options_.grad_accumulation * options_.world_size * options_.batch_size;
}

std::int64_t BatchSampler::samples_before(std::int64_t step) const {
  return options_.first_sample +
         (step - options_.first_step) * samples_per_step();
}

EpochPosition BatchSampler::epoch_of(std::int64_t step) const {
  const std::int64_t g = samples_before(step);
  return {.epoch = g / samples_per_epoch(), .sample = g % samples_per_epoch()};
}

std::int64_t BatchSampler::steps_of_epochs(std::int64_t epochs) const {
  const std::int64_t samples = std::max<std::int64_t>(
      epochs * samples_per_epoch() - options_.first_sample, 0);
  return options_.first_step +
         (samples + samples_per_step() - 1) / samples_per_step();
}

}  // namespace accordion
