// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/data/token_file.h"

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>

#include <fmt/format.h>

namespace accordion {
namespace {

namespace fs = std::filesystem;
static_assert(std::endian::native == std::endian::little,
              "token files are mapped as they are");

/// llm.c writes 256 numbers of 32 bits: magic, version, count, and zeros.
constexpr std::int64_t kHeaderBytes = 1024;
using Header = std::array<std::int32_t, kHeaderBytes / 4>;

struct KnownHeader {
  std::int32_t magic;
  std::int32_t version;
  int width;
};
constexpr std::array kKnownHeaders = {
    KnownHeader{20240520, 1, 2},  // GPT-2's tokens
    KnownHeader{20240801, 7, 4},  // Llama 3's tokens
};

[[noreturn]] void fail(const fs::path& path, const std::string& problem) {
  throw std::invalid_argument(
      fmt::format("[token file] '{}' {}", path.string(), problem));
}

std::int64_t size_of(const fs::path& path) {
  std::error_code error;
  const bool regular = fs::is_regular_file(path, error);
  if (!error && !regular) {
    fail(path, "is not a regular file. Name files in data.path.");
  }
  const std::uintmax_t bytes = error ? 0 : fs::file_size(path, error);
  if (error) {
    fail(path,
         fmt::format("cannot be read: {}. Check data.path.", error.message()));
  }
  if (bytes == 0) {
    fail(path, "is empty. Remove it, or leave it out of data.path.");
  }
  return static_cast<std::int64_t>(bytes);
}

/// The header, of which what the file does not have is 0.
Header read_header(const fs::path& path) {
  Header header{};
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(header.data()), sizeof(header));
  if (!file.is_open() || file.bad()) {
    fail(path, fmt::format("cannot be read: {}. Check its permissions.",
                           std::strerror(errno)));
  }
  return header;
}

std::optional<KnownHeader> known_header(const Header& header) {
  for (const KnownHeader& known : kKnownHeaders) {
    if (header[0] == known.magic) {
      return known;
    }
  }
  return std::nullopt;
}

int width_of(TokenDtype dtype) {
  return dtype == TokenDtype::Uint16 ? 2 : 4;
}

TokenFile with_header(TokenFile file, const Header& header,
                      const KnownHeader& known, TokenDtype dtype) {
  if (header[1] != known.version) {
    fail(file.path,
         fmt::format("has a header of llm.c with magic {} and version {}, but "
                     "version {} is the one that is known. Write the file "
                     "anew.",
                     known.magic, header[1], known.version));
  }
  if (dtype != TokenDtype::Auto && width_of(dtype) != known.width) {
    fail(file.path,
         fmt::format("holds uint{} by its header, but data.token_dtype is "
                     "\"uint{}\". Set it to \"auto\".",
                     known.width * 8, width_of(dtype) * 8));
  }
  file.offset = kHeaderBytes;
  file.width = known.width;
  file.count = header[2];
  const std::int64_t expected = kHeaderBytes + file.count * file.width;
  if (file.count < 1 || file.bytes != expected) {
    fail(file.path,
         fmt::format("promises {} tokens of {} bytes in its header, {} bytes "
                     "with it, but has {} bytes. It was cut or is no token "
                     "file; write it anew.",
                     file.count, file.width, expected, file.bytes));
  }
  return file;
}

TokenFile bare(TokenFile file, TokenDtype dtype) {
  if (dtype == TokenDtype::Auto) {
    fail(file.path,
         "has no header that tells the type of its tokens. Set "
         "data.token_dtype to \"uint16\" (nanoGPT) or \"uint32\".");
  }
  file.width = width_of(dtype);
  if (file.bytes % file.width != 0) {
    fail(file.path,
         fmt::format("has {} bytes, which is no whole number of uint{}. It was "
                     "cut, or data.token_dtype is another.",
                     file.bytes, file.width * 8));
  }
  file.count = file.bytes / file.width;
  return file;
}

}  // namespace

TokenFile inspect_text_file(const fs::path& path) {
  const std::int64_t bytes = size_of(path);
  return {.path = path, .count = bytes, .bytes = bytes};
}

TokenFile inspect_token_file(const fs::path& path, TokenDtype dtype) {
  const TokenFile file = {.path = path, .bytes = size_of(path)};
  const Header header = read_header(path);
  if (const auto known = known_header(header)) {
    return with_header(file, header, *known, dtype);
  }
  return bare(file, dtype);
}

}  // namespace accordion
