// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string_view>

#include "accordion/data/permutation.h"

namespace accordion {

/// A 64-bit number that stands for a sequence of texts and numbers: equal where
/// they are, different where they are not, but for a chance of 2^-64.
/// Not made to withstand someone who wants two sequences to collide.
class Fingerprint {
 public:
  void add(std::uint64_t number) { value_ = mix_bits(value_ ^ number); }
  void add(std::string_view text) {
    for (const char c : text) {  // FNV-1a
      value_ = (value_ ^ static_cast<std::uint8_t>(c)) * 0x100000001b3ULL;
    }
    add(text.size());
  }
  [[nodiscard]] std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325ULL;
};

}  // namespace accordion
