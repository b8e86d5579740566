// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>

namespace accordion {

/// Philox4x32-10: four random words for any counter and key, without state.
/// Element 10^9 of a tensor costs the same as element 0, so a rank draws just
/// the elements that it owns.
///
/// Source  Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"
class Philox {
 public:
  using Block = std::array<std::uint32_t, 4>;

  explicit Philox(std::uint64_t key) : key_(key) {}

  /// `stream` and `index` together are the counter.
  [[nodiscard]] Block block(std::uint64_t index,
                            std::uint64_t stream = 0) const;

 private:
  std::uint64_t key_;
};

/// Uniform in (0, 1], never 0, so that its logarithm is finite.
[[nodiscard]] double to_unit(std::uint32_t word);

}  // namespace accordion
