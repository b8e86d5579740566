// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>

#include "accordion/data/cache_file.h"
#include "accordion/data/token_stream.h"

namespace accordion {

/// How documents are told apart in a stream. A document begins at the first
/// token, and wherever one of these says so.
struct DocumentMarks {
  std::optional<std::int64_t> bos;  ///< an id that begins one
  std::optional<std::int64_t> eos;  ///< an id that ends one
  std::string separator;            ///< of bytes: a text that ends one
  bool at_files = true;             ///< a file begins one
};

/// Appends the first position of each document, in ascending order, to a table
/// of positions. Reads the whole stream once, in blocks.
///
/// Throws std::runtime_error when `stop` was requested, or an id is out of
///        range
void find_documents(const TokenStream& stream, const DocumentMarks& marks,
                    CacheWriter& table, const std::stop_token& stop);

}  // namespace accordion
