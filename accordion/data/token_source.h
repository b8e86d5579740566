// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>

namespace accordion {

/// A sequence of token ids of which any part can be read.
class TokenSource {
 public:
  virtual ~TokenSource() = default;

  [[nodiscard]] virtual std::int64_t size() const = 0;

  /// Reads out.size() tokens from position `begin`, all within size().
  virtual void read(std::int64_t begin, std::span<std::int64_t> out) const = 0;
};

/// A part of a source that outlives it: [begin, end).
struct TokenRange {
  const TokenSource* source = nullptr;
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] std::int64_t size() const { return end - begin; }
};

}  // namespace accordion
