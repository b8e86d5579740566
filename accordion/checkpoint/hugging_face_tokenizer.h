// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>

// The files from which transformers makes the tokenizer of a run.
namespace accordion {

/// Texts by name, such as the contents of files.
using NamedTexts = std::map<std::string, std::string>;

/// A tokenizer whose token i is byte i, without special tokens: 256 symbols and
/// no merges. `max_length` is the longest sequence that the model takes.
NamedTexts byte_tokenizer_files(std::int64_t max_length);

struct SentencePieceFacts {
  /// The pieces that are not text, by "bos", "eos", "unk" and "pad", as far as
  /// there are such.
  NamedTexts specials;
  /// Whether LlamaTokenizer reads it right: see tokenizer_class in the source.
  bool is_like_llama = false;
};

/// The SentencePiece model itself, whose bytes `model` are, and how
/// transformers reads it: each text begins with the bos token where there is
/// one, as in training.
NamedTexts sentence_piece_files(std::string model,
                                const SentencePieceFacts& facts,
                                std::int64_t max_length);

}  // namespace accordion
