// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "accordion/data/tokenizer.h"

namespace accordion {

/// Reads a SentencePiece model, as Llama 1 and 2 and T5 come with. Text is
/// normalised as the model says, so that decode(encode(text)) may differ from
/// `text` in spaces.
///
/// Throws std::invalid_argument that names the file when it cannot be read or
///        is no model
std::unique_ptr<const Tokenizer> open_sentence_piece(
    const std::filesystem::path& model);

/// What other programs must be told of a SentencePiece model.
struct SentencePieceTraits {
  /// How it spells ids that are not text, by "bos", "eos", "unk" and "pad", as
  /// far as it has them.
  std::map<std::string, std::string> specials;
  /// Whether it is of the kind that came with Llama 1 and 2: merged pairs, text
  /// that reaches them as it is, bytes for what has no piece.
  bool is_like_llama = false;
};

/// Throws std::invalid_argument as open_sentence_piece
SentencePieceTraits sentence_piece_traits(const std::filesystem::path& model);

}  // namespace accordion
