// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <stop_token>
#include <string>
#include <string_view>

#include "accordion/data/token_file.h"
#include "accordion/data/tokenizer.h"

namespace accordion {

struct TokenCacheOptions {
  std::filesystem::path folder;    ///< where caches lie; made if there is none
  std::string document_separator;  ///< empty: a file is a document
};

/// The tokens of a text file, from its cache ([Note: cache files]). The cache
/// is made, or made anew, where there is none of this tokenizer, separator and
/// path, or where the text's size or time of change is another.
///
/// Each document that is not empty becomes bos, its tokens, eos, as far as the
/// tokenizer has these. Documents longer than 256 KiB are encoded in parts that
/// end behind a line, or between characters where a line is longer: the text is
/// mapped, and memory does not grow with it.
///
/// Throws std::invalid_argument when the text cannot be read or gives no token,
///        std::runtime_error when the cache cannot be written or `stop` was
///        requested
TokenFile cached_tokens(const std::filesystem::path& text,
                        const Tokenizer& tokenizer,
                        const TokenCacheOptions& options,
                        const std::stop_token& stop = {});

/// Cuts the first document off `rest`, and the separator that ends it; with an
/// empty separator the whole. Returns the document without separator.
std::string_view take_document(std::string_view& rest,
                               std::string_view separator);

/// The length of the first part of a document that is encoded at once, at most
/// `limit` bytes.
std::size_t first_part(std::string_view document, std::size_t limit);

}  // namespace accordion
