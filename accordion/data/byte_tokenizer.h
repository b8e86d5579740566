// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace accordion {

/// Text as its bytes: token i is byte i. Every text can be encoded, and a loss
/// per token is a loss per byte.
struct ByteTokenizer {
  static constexpr std::int64_t kVocabSize = 256;

  static std::vector<std::int64_t> encode(std::string_view text);

  /// The text as it is, even where it is no valid UTF-8.
  ///
  /// Throws std::invalid_argument for a token outside [0, 256)
  static std::string decode(std::span<const std::int64_t> tokens);
};

}  // namespace accordion
