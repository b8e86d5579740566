// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>

namespace accordion {

/// Mixes a 64-bit value so that each output bit depends on all input bits
/// (SplitMix64's finaliser); a stateless source of repeatable randomness.
[[nodiscard]] std::uint64_t mix_bits(std::uint64_t value);

/// A pseudo-random order of 0, 1, …, size - 1 that is never written down: each
/// position is computed in O(1), on every rank and after every restart alike.
///
/// A Feistel network permutes the numbers of the smallest even number of bits
/// that holds `size`; results outside are permuted again until they fall inside
/// (cycle walking), which keeps it a permutation and takes less than four
/// rounds through the network on average.
class Permutation {
 public:
  /// Throws std::invalid_argument for size < 1
  Permutation(std::int64_t size, std::uint64_t seed);

  /// The element at `position`, which must lie in [0, size).
  [[nodiscard]] std::int64_t operator()(std::int64_t position) const;
  [[nodiscard]] std::int64_t size() const { return size_; }

 private:
  static constexpr int kRounds = 6;

  [[nodiscard]] std::uint64_t encrypt(std::uint64_t value) const;

  std::int64_t size_;
  int half_bits_;  // width of each half of the network
  std::array<std::uint64_t, kRounds> keys_{};
};

}  // namespace accordion
