// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/data/tokenizer.h"

#include "accordion/data/byte_tokenizer.h"
#include "accordion/data/sentence_piece_tokenizer.h"

namespace accordion {

std::unique_ptr<const Tokenizer> open_tokenizer(const std::string& name) {
  if (name == "bytes") {
    return std::make_unique<ByteTokenizer>();
  }
  return open_sentence_piece(name);
}

}  // namespace accordion
