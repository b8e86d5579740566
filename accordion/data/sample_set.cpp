// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/data/sample_set.h"

#include <algorithm>

#include "accordion/data/permutation.h"

namespace accordion {

std::int64_t StreamWindows::strided(std::int64_t g) const {
  // Nothing to walk where only one window fits.
  return last() == 0 ? 0 : g * seq_len_ % last();
}

std::int64_t StreamWindows::in_epoch(std::int64_t index,
                                     std::uint64_t seed) const {
  const auto phase = static_cast<std::int64_t>(
      mix_bits(seed) % static_cast<std::uint64_t>(seq_len_));
  // The last window of a shifted epoch would run past the end; it is moved back
  // to the last place where it fits.
  return std::min(index * seq_len_ + phase, last());
}

std::int64_t StreamWindows::spread(std::int64_t i, std::int64_t n) const {
  return n > 1 ? i * last() / (n - 1) : 0;
}

void StreamWindows::read(std::int64_t position, SampleRow row) const {
  const std::int64_t begin = range_.begin + position;
  range_.source->read(begin, row.inputs);
  std::copy(row.inputs.begin() + 1, row.inputs.end(), row.targets.begin());
  range_.source->read(begin + seq_len_, row.targets.last(1));
}

}  // namespace accordion
