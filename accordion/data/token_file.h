// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>

namespace accordion {

/// Type of the ids in a token file.
enum class TokenDtype : std::uint8_t {
  Auto,  ///< as the file's header says
  Uint16,
  Uint32,
};

/// A file of token ids, and how they lie in it: `count` unsigned little-endian
/// numbers of `width` bytes from `offset` on. docs/data.md has the formats.
struct TokenFile {
  std::filesystem::path path;
  std::int64_t offset = 0;  ///< bytes
  int width = 1;            ///< bytes: 1, 2 or 4
  std::int64_t count = 0;   ///< tokens
  std::int64_t bytes = 0;   ///< of the file, when it was looked at
};

/// A text whose bytes are the tokens.
///
/// Throws std::invalid_argument that names the file when it cannot be read or
///        is empty
TokenFile inspect_text_file(const std::filesystem::path& path);

/// A file of ids: with a header of llm.c (its magic number, version and size
/// are checked), or bare ids as nanoGPT writes them. Reads the header only.
///
/// Throws std::invalid_argument that names the file and what is wrong: it
///        cannot be read, holds no token, has a size that does not fit, a
///        version that is not known, or ids of unknown or other type
TokenFile inspect_token_file(const std::filesystem::path& path,
                             TokenDtype dtype);

}  // namespace accordion
