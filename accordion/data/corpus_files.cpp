// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/data/corpus_files.h"

#include <algorithm>
#include <optional>
#include <stdexcept>

#include <fmt/format.h>

#include "accordion/data/byte_tokenizer.h"
#include "accordion/data/data_files.h"

namespace accordion {
namespace {

void raise_if(bool wrong, const std::string& problem) {
  if (wrong) {
    throw std::invalid_argument("[data] " + problem);
  }
}

std::optional<std::int64_t> id(std::int64_t value) {
  return value < 0 ? std::nullopt : std::optional<std::int64_t>(value);
}

void check_token_options(const CorpusOptions& options) {
  raise_if(!options.document_separator.empty(),
           "'data.document_separator' is set, but data.path holds token ids, "
           "where text cannot be found. Set data.eos_token to the id that ends "
           "a document.");
  const bool has_id = options.bos_token >= 0 || options.eos_token >= 0;
  raise_if(has_id && options.packing == Packing::Stream,
           "'data.bos_token' and 'data.eos_token' tell documents apart, which "
           "data.packing = \"stream\" does not. Set it to \"documents\", or "
           "leave them out.");
  const std::int64_t largest = std::max(options.bos_token, options.eos_token);
  raise_if(
      largest >= options.vocab_size,
      fmt::format("'data.bos_token' is {} and 'data.eos_token' {}, but the "
                  "model's vocab_size is {}. Ids must be below it.",
                  options.bos_token, options.eos_token, options.vocab_size));
}

void check_text_options(const CorpusOptions& options,
                        const Tokenizer& tokenizer) {
  raise_if(options.token_dtype != TokenDtype::Auto,
           "'data.token_dtype' is set, but data.path holds text. Leave it out, "
           "or name files that end in .bin.");
  raise_if(options.bos_token >= 0 || options.eos_token >= 0,
           "'data.bos_token' or 'data.eos_token' is set, but data.path holds "
           "text, whose tokenizer has these. Use data.document_separator.");
  raise_if(!options.document_separator.empty() && reads_bytes(tokenizer) &&
               options.packing == Packing::Stream,
           "'data.document_separator' is set, but changes nothing where "
           "data.tokenizer is \"bytes\" and data.packing \"stream\". Set "
           "data.packing to \"documents\", or leave it out.");
}

}  // namespace

bool reads_bytes(const Tokenizer& tokenizer) {
  return dynamic_cast<const ByteTokenizer*>(&tokenizer) != nullptr;
}

CorpusFiles find_corpus_files(const CorpusOptions& options,
                              const Tokenizer& tokenizer) {
  CorpusFiles files = {.paths = find_data_files(options.paths)};
  const auto tokens = std::ranges::find_if(files.paths, holds_tokens);
  const auto text = std::ranges::find_if_not(files.paths, holds_tokens);
  files.hold_tokens = text == files.paths.end();
  if (files.hold_tokens) {
    check_token_options(options);
    return files;
  }
  if (tokens != files.paths.end()) {
    throw std::invalid_argument(fmt::format(
        "[data] data.path finds text ('{}') and token ids ('{}'). Name one "
        "kind.",
        text->string(), tokens->string()));
  }
  check_text_options(options, tokenizer);
  return files;
}

DocumentMarks document_marks(const CorpusOptions& options,
                             const CorpusFiles& files,
                             const Tokenizer& tokenizer) {
  if (files.hold_tokens) {
    const auto bos = id(options.bos_token);
    const auto eos = id(options.eos_token);
    // Whoever writes files of equal size goes on with a document in the next.
    return {.bos = bos, .eos = eos, .separator = {}, .at_files = !bos && !eos};
  }
  if (reads_bytes(tokenizer)) {
    return {.bos = {}, .eos = {}, .separator = options.document_separator};
  }
  const bool has_ids = tokenizer.bos() || tokenizer.eos();
  raise_if(!options.document_separator.empty() && !has_ids,
           "data.packing is \"documents\", but data.tokenizer has neither a "
           "begin nor an end token that could tell them apart. Train one that "
           "has, or leave data.document_separator out: a file is a document.");
  return {.bos = tokenizer.bos(), .eos = tokenizer.eos(), .separator = {}};
}

}  // namespace accordion
