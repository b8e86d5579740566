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

/// How a SentencePiece model spells ids that are not text, by "bos", "eos",
/// "unk" and "pad", as far as it has them.
///
/// Throws std::invalid_argument as open_sentence_piece
std::map<std::string, std::string> sentence_piece_specials(
    const std::filesystem::path& model);

}  // namespace accordion
