// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "accordion/data/token_source.h"

namespace accordion::testing {

/// Tokens that a test made up.
class MemoryTokens : public TokenSource {
 public:
  explicit MemoryTokens(std::vector<std::int64_t> tokens)
      : tokens_(std::move(tokens)) {}

  [[nodiscard]] std::int64_t size() const override {
    return static_cast<std::int64_t>(tokens_.size());
  }
  void read(std::int64_t begin, std::span<std::int64_t> out) const override {
    std::copy_n(tokens_.begin() + begin, out.size(), out.begin());
  }
  [[nodiscard]] TokenRange range() const {
    return {.source = this, .begin = 0, .end = size()};
  }

 private:
  std::vector<std::int64_t> tokens_;
};

/// Token j is j mod `period`.
inline MemoryTokens numbered_tokens(std::int64_t count, std::int64_t period) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(count));
  for (std::int64_t j = 0; j < count; ++j) {
    tokens[static_cast<std::size_t>(j)] = j % period;
  }
  return MemoryTokens(std::move(tokens));
}

}  // namespace accordion::testing
