// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace accordion {

/// How the elements of a fresh parameter are distributed. A value; elements are
/// independent of each other, so that a rank draws just those that it owns.
struct InitRule {
  enum class Kind : std::uint8_t { Constant, Uniform, Normal };

  Kind kind = Kind::Constant;
  double first = 0;   ///< the constant; low end; mean
  double second = 0;  ///< unused; high end; standard deviation
  /// Elements [zero_begin, zero_end), in row-major order, are 0 instead: the
  /// padding row of an embedding.
  std::int64_t zero_begin = 0;
  std::int64_t zero_end = 0;

  static InitRule constant(double value) { return {Kind::Constant, value}; }
  /// Uniform in (low, high].
  static InitRule uniform(double low, double high) {
    return {Kind::Uniform, low, high};
  }
  static InitRule normal(double mean, double deviation) {
    return {Kind::Normal, mean, deviation};
  }
  /// Uniform in (-bound, bound].
  static InitRule within(double bound) { return uniform(-bound, bound); }
};

/// The key under which the values of parameter `name` are drawn: one for each
/// pair of seed and name.
[[nodiscard]] std::uint64_t random_key(std::uint64_t seed,
                                       std::string_view name);

/// Draws elements [begin, begin + into.size()) of the parameter with that key.
/// A value depends on rule, key and its position alone: it is the same whatever
/// the number of ranks and whoever draws it.
///
/// Element i comes from Philox block i / 4: one word each for uniform values,
/// two pairs of words, turned into two normals each (Box and Muller), else.
void fill(const InitRule& rule, std::uint64_t key, std::int64_t begin,
          std::span<float> into);

}  // namespace accordion
