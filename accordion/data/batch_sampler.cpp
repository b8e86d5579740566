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

void check(std::span<const std::uint8_t> text,
           const BatchSamplerOptions& options) {
  check_at_least_one(options.seq_len, "seq_len");
  check_at_least_one(options.batch_size, "batch_size");
  check_at_least_one(options.grad_accumulation, "grad_accumulation");
  check_at_least_one(options.world_size, "world_size");
  if (options.rank < 0 || options.rank >= options.world_size) {
    throw std::invalid_argument(
        fmt::format("[BatchSampler] rank is {}; with world_size {} it must be "
                    "from 0 to {}.",
                    options.rank, options.world_size, options.world_size - 1));
  }
  const auto bytes = static_cast<std::int64_t>(text.size());
  if (bytes < options.seq_len + 2) {
    throw std::invalid_argument(fmt::format(
        "[BatchSampler] The text is too short: {} bytes to train on, but "
        "seq_len {} needs at least {}. Use a longer text, or lower "
        "data.seq_len or data.validation_fraction.",
        bytes, options.seq_len, options.seq_len + 2));
  }
}

}  // namespace

BatchSampler::BatchSampler(std::span<const std::uint8_t> text,
                           const BatchSamplerOptions& options)
    : text_(text), options_(options) {
  check(text, options);
  // One byte more than the windows: the target of the last one.
  num_windows_ = (static_cast<std::int64_t>(text.size()) - 1) / options.seq_len;
}

Batch BatchSampler::batch(std::int64_t step, std::int64_t microbatch) const {
  const std::int64_t rows = options_.batch_size;
  Batch batch;
  batch.inputs.resize(static_cast<std::size_t>(rows * options_.seq_len));
  batch.targets.resize(batch.inputs.size());
  const std::int64_t first =
      ((step * options_.grad_accumulation + microbatch) * options_.world_size +
       options_.rank) *
      rows;
  for (std::int64_t row = 0; row < rows; ++row) {
    copy_window(text_, start_of(first + row), options_.seq_len, row, batch);
  }
  return batch;
}

std::int64_t BatchSampler::start_of(std::int64_t global_sample) const {
  if (options_.order == SampleOrder::Shuffled) {
    return shuffled_start(global_sample);
  }
  const auto bytes = static_cast<std::int64_t>(text_.size());
  return global_sample * options_.seq_len % (bytes - options_.seq_len - 1);
}

std::int64_t BatchSampler::shuffled_start(std::int64_t global_sample) const {
  const std::int64_t epoch = global_sample / num_windows_;
  const std::uint64_t seed =
      mix_bits(options_.seed ^ mix_bits(static_cast<std::uint64_t>(epoch)));
  const std::int64_t window =
      Permutation(num_windows_, seed)(global_sample % num_windows_);
  // Windows of another epoch start elsewhere within seq_len, so that the model
  // does not see the same cuts again. The last window of a shifted epoch would
  // run past the end; it is moved back to the last place where it fits.
  const auto phase = static_cast<std::int64_t>(
      mix_bits(seed) % static_cast<std::uint64_t>(options_.seq_len));
  const auto last =
      static_cast<std::int64_t>(text_.size()) - options_.seq_len - 1;
  return std::min(window * options_.seq_len + phase, last);
}

void copy_window(std::span<const std::uint8_t> text, std::int64_t start,
                 std::int64_t seq_len, std::int64_t row, Batch& batch) {
  const auto source = text.subspan(static_cast<std::size_t>(start),
                                   static_cast<std::size_t>(seq_len) + 1);
  std::copy(source.begin(), source.end() - 1,
            batch.inputs.begin() + row * seq_len);
  std::copy(source.begin() + 1, source.end(),
            batch.targets.begin() + row * seq_len);
}

}  // namespace accordion
