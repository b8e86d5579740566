// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "accordion/data/tokenizer.h"

namespace accordion {

/// Text as its bytes: token i is byte i. Every text can be encoded, and a loss
/// per token is a loss per byte.
class ByteTokenizer : public Tokenizer {
 public:
  static constexpr std::int64_t kVocabSize = 256;

  [[nodiscard]] std::vector<std::int64_t> encode(
      std::string_view text) const override;
  /// The text as it is, even where it is no valid UTF-8.
  std::string decode(std::span<const std::int64_t> tokens) const override;
  [[nodiscard]] std::int64_t vocab_size() const override { return kVocabSize; }
  [[nodiscard]] std::optional<std::int64_t> bos() const override { return {}; }
  [[nodiscard]] std::optional<std::int64_t> eos() const override { return {}; }
  [[nodiscard]] std::uint64_t fingerprint() const override { return 0; }
};

}  // namespace accordion
