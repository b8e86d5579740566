// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/data/token_cache.h"

#include <algorithm>
#include <optional>
#include <stdexcept>

#include <fmt/format.h>

#include "accordion/data/cache_file.h"
#include "accordion/data/fingerprint.h"
#include "accordion/data/mapped_file.h"

namespace accordion {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPartBytes = 256 * 1024;

/// Another name for each text, tokenizer and separator, so that runs with
/// different ones do not take turns in making the same file anew.
fs::path cache_path(const fs::path& text, const Tokenizer& tokenizer,
                    const TokenCacheOptions& options) {
  Fingerprint fingerprint;
  fingerprint.add(fs::weakly_canonical(text).native());
  fingerprint.add(tokenizer.fingerprint());
  fingerprint.add(options.document_separator);
  return options.folder / fmt::format("{}-{:016x}.tokens", text.stem().string(),
                                      fingerprint.value());
}

/// Writes documents as tokens.
class Encoder {
 public:
  Encoder(const Tokenizer& tokenizer, CacheWriter& writer,
          const std::stop_token& stop)
      : tokenizer_(tokenizer), writer_(writer), stop_(stop) {}

  void add(std::string_view document) {
    if (document.empty()) {
      return;
    }
    append(tokenizer_.bos());
    while (!document.empty()) {
      if (stop_.stop_requested()) {
        throw std::runtime_error("[data] Tokenising was interrupted.");
      }
      const std::size_t length = first_part(document, kPartBytes);
      for (const std::int64_t id :
           tokenizer_.encode(document.substr(0, length))) {
        append(id);
      }
      document.remove_prefix(length);
    }
    append(tokenizer_.eos());
  }

 private:
  void append(std::optional<std::int64_t> id) {
    if (id) {
      writer_.append(static_cast<std::uint64_t>(*id));
    }
  }

  const Tokenizer& tokenizer_;
  CacheWriter& writer_;
  const std::stop_token& stop_;
};

void tokenize(const fs::path& text, const Tokenizer& tokenizer,
              const std::string& separator, CacheWriter& writer,
              const std::stop_token& stop) {
  const MappedFile file = MappedFile::open(text);
  std::string_view rest = file.text();
  Encoder encoder(tokenizer, writer, stop);
  while (!rest.empty()) {
    encoder.add(take_document(rest, separator));
  }
  if (writer.count() == 0) {
    throw std::invalid_argument(
        fmt::format("[data] '{}' gives no token: it holds nothing but "
                    "separators. Leave it out of data.path.",
                    text.string()));
  }
}

bool is_fresh(const std::optional<CacheHeader>& header, int width,
              std::uint64_t fingerprint) {
  return header && header->width == width &&
         header->fingerprint == fingerprint && header->count > 0;
}

}  // namespace

TokenFile cached_tokens(const fs::path& text, const Tokenizer& tokenizer,
                        const TokenCacheOptions& options,
                        const std::stop_token& stop) {
  const int width = tokenizer.vocab_size() <= 65536 ? 2 : 4;
  const fs::path path = cache_path(text, tokenizer, options);
  const std::uint64_t state = file_state(text);
  auto header = read_cache_header(path);
  if (!is_fresh(header, width, state)) {
    CacheWriter writer(path, width, state);
    tokenize(text, tokenizer, options.document_separator, writer, stop);
    writer.commit();
    header = read_cache_header(path);
  }
  if (!is_fresh(header, width, state)) {
    throw std::runtime_error(fmt::format(
        "[data] The cache file '{}' is not what was written to it: another run "
        "or a full disk changed it. Set data.cache_dir to another folder.",
        path.string()));
  }
  return {.path = path,
          .offset = CacheHeader::kBytes,
          .width = width,
          .count = header->count,
          .bytes = CacheHeader::kBytes + header->count * width};
}

std::string_view take_document(std::string_view& rest,
                               std::string_view separator) {
  const std::size_t end =
      separator.empty() ? std::string_view::npos : rest.find(separator);
  const std::string_view document = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size()
                                                   : end + separator.size());
  return document;
}

std::size_t first_part(std::string_view document, std::size_t limit) {
  if (document.size() <= limit) {
    return document.size();
  }
  const std::size_t line = document.substr(0, limit).rfind('\n');
  if (line != std::string_view::npos) {
    return line + 1;
  }
  // Back to the first byte of a character; four bytes are the longest.
  std::size_t length = limit;
  const auto continues = [&](std::size_t at) {
    return (static_cast<unsigned char>(document[at]) & 0xC0) == 0x80;
  };
  while (length > 1 && limit - length < 4 && continues(length)) {
    --length;
  }
  return length;
}

}  // namespace accordion
