// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/data/byte_tokenizer.h"

#include <stdexcept>

#include <fmt/format.h>

namespace accordion {

std::vector<std::int64_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<std::int64_t> tokens;
  tokens.reserve(text.size());
  for (const char c : text) {
    tokens.push_back(static_cast<std::uint8_t>(c));
  }
  return tokens;
}

std::string ByteTokenizer::decode(std::span<const std::int64_t> tokens) const {
  std::string text;
  text.reserve(tokens.size());
  for (const std::int64_t token : tokens) {
    if (token < 0 || token >= kVocabSize) {
      throw std::invalid_argument(fmt::format(
          "[ByteTokenizer] Token {} is no byte; the vocabulary has {} entries. "
          "Use a model with vocab_size {}.",
          token, kVocabSize, kVocabSize));
    }
    text.push_back(static_cast<char>(token));
  }
  return text;
}

}  // namespace accordion
