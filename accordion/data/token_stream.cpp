// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/data/token_stream.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

namespace accordion {
namespace {

template <class T>
void widen(const std::uint8_t* from, std::span<std::int64_t> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    T id{};
    std::memcpy(&id, from + i * sizeof(T), sizeof(T));
    out[i] = static_cast<std::int64_t>(id);
  }
}

}  // namespace

TokenStream::TokenStream(std::vector<TokenFile> files,
                         const TokenStreamOptions& options)
    : files_(std::move(files)), starts_{0}, options_(options) {
  if (options.max_open_files < 1 || options.vocab_size < 1) {
    throw std::invalid_argument(
        fmt::format("[TokenStream] max_open_files is {} and vocab_size {}; "
                    "both must be at least 1.",
                    options.max_open_files, options.vocab_size));
  }
  for (const TokenFile& file : files_) {
    starts_.push_back(starts_.back() + file.count);
  }
}

void TokenStream::read(std::int64_t begin, std::span<std::int64_t> out) const {
  // The last file that starts at or before `begin`.
  const auto after = std::ranges::upper_bound(starts_, begin);
  auto file = static_cast<std::size_t>(after - starts_.begin()) - 1;
  while (!out.empty()) {
    const auto here = std::min<std::int64_t>(
        starts_[file + 1] - begin, static_cast<std::int64_t>(out.size()));
    read_file(file, begin - starts_[file],
              out.first(static_cast<std::size_t>(here)));
    out = out.subspan(static_cast<std::size_t>(here));
    begin += here;
    ++file;
  }
}

void TokenStream::read_file(std::size_t file, std::int64_t first,
                            std::span<std::int64_t> out) const {
  const TokenFile& about = files_[file];
  const std::uint8_t* const from =
      mapping_of(file).bytes().data() + about.offset + first * about.width;
  switch (about.width) {
    case 1:
      widen<std::uint8_t>(from, out);
      break;
    case 2:
      widen<std::uint16_t>(from, out);
      break;
    default:
      widen<std::uint32_t>(from, out);
      break;
  }
  const auto wrong = std::ranges::find_if(
      out, [this](std::int64_t id) { return id >= options_.vocab_size; });
  if (wrong != out.end()) {
    const std::int64_t index = first + (wrong - out.begin());
    throw std::runtime_error(fmt::format(
        "[TokenStream] '{}' has id {} at token {} (byte {}), but vocab_size is "
        "{}. Use the model that belongs to these tokens, or check "
        "data.token_dtype.",
        about.path.string(), *wrong, index, about.offset + index * about.width,
        options_.vocab_size));
  }
}

const MappedFile& TokenStream::mapping_of(std::size_t file) const {
  const auto found = std::ranges::find(open_, file, &Open::file);
  if (found != open_.end()) {
    std::rotate(open_.begin(), found, found + 1);
    return open_.front().mapping;
  }
  const TokenFile& about = files_[file];
  MappedFile mapping = MappedFile::open(about.path);
  const auto bytes = static_cast<std::int64_t>(mapping.bytes().size());
  if (bytes != about.bytes) {
    throw std::runtime_error(fmt::format(
        "[TokenStream] '{}' has {} bytes, but had {} when the run started. Do "
        "not change data during a run.",
        about.path.string(), bytes, about.bytes));
  }
  if (open_.size() == static_cast<std::size_t>(options_.max_open_files)) {
    open_.pop_back();
  }
  open_.insert(open_.begin(), Open{file, std::move(mapping)});
  return open_.front().mapping;
}

}  // namespace accordion
