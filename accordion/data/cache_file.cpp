// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/data/cache_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "accordion/data/fingerprint.h"

namespace accordion {
namespace {

namespace fs = std::filesystem;
static_assert(std::endian::native == std::endian::little,
              "cache files are mapped as they are");

constexpr std::uint32_t kVersion = 1;
constexpr std::array<char, 8> kMagic = {'a', 'c', 'c', 'd', 'a', 't', 'a', 0};

/// The header as it lies in the file.
struct RawHeader {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t width = 0;
  std::uint64_t count = 0;
  std::uint64_t fingerprint = 0;
};
static_assert(sizeof(RawHeader) == CacheHeader::kBytes);

bool fits(const RawHeader& raw, std::uint64_t file_bytes) {
  const bool known_width = raw.width == 2 || raw.width == 4 || raw.width == 8;
  // Divided, as a damaged count times the width may overflow.
  return raw.magic == kMagic && raw.version == kVersion && known_width &&
         (file_bytes - sizeof(raw)) % raw.width == 0 &&
         (file_bytes - sizeof(raw)) / raw.width == raw.count;
}

}  // namespace

std::optional<CacheHeader> read_cache_header(const fs::path& path) {
  RawHeader raw;
  std::ifstream file(path, std::ios::binary);
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(path, error);
  if (error || bytes < sizeof(raw) ||
      !file.read(reinterpret_cast<char*>(&raw), sizeof(raw)) ||
      !fits(raw, bytes)) {
    return std::nullopt;
  }
  return CacheHeader{.width = static_cast<int>(raw.width),
                     .count = static_cast<std::int64_t>(raw.count),
                     .fingerprint = raw.fingerprint};
}

std::uint64_t file_state(const fs::path& path) {
  struct stat status {};
  Fingerprint fingerprint;
  if (::stat(path.c_str(), &status) == 0) {
    fingerprint.add(static_cast<std::uint64_t>(status.st_size));
    fingerprint.add(static_cast<std::uint64_t>(status.st_mtim.tv_sec));
    fingerprint.add(static_cast<std::uint64_t>(status.st_mtim.tv_nsec));
  }
  return fingerprint.value();
}

CacheWriter::CacheWriter(const fs::path& path, int width,
                         std::uint64_t fingerprint)
    : path_(path),
      part_(path.string() + ".part-XXXXXX"),
      header_{.width = width, .count = 0, .fingerprint = fingerprint} {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error) {
    errno = error.value();
    fail("make the folder of");
  }
  const int descriptor = ::mkstemp(part_.data());
  if (descriptor < 0) {
    fail("write");
  }
  file_ = ::fdopen(descriptor, "wb");
  write_header();  // of no numbers, until commit()
}

CacheWriter::~CacheWriter() {
  if (file_ != nullptr) {
    std::fclose(file_);
    ::unlink(part_.c_str());
  }
}

void CacheWriter::append(std::uint64_t number) {
  write(&number, static_cast<std::size_t>(header_.width));
  ++header_.count;
}

void CacheWriter::commit() {
  std::rewind(file_);
  write_header();
  if (std::fflush(file_) != 0 || ::fsync(::fileno(file_)) != 0 ||
      ::fchmod(::fileno(file_), 0644) != 0 ||
      ::rename(part_.c_str(), path_.c_str()) != 0) {
    fail("finish");
  }
  std::fclose(std::exchange(file_, nullptr));
}

void CacheWriter::fail(const char* what) const {
  throw std::runtime_error(
      fmt::format("[data] Cannot {} the cache file '{}': {}. Set "
                  "data.cache_dir to a folder with room for it.",
                  what, path_.string(), std::strerror(errno)));
}

void CacheWriter::write(const void* data, std::size_t bytes) {
  if (std::fwrite(data, 1, bytes, file_) != bytes) {
    fail("write");
  }
}

void CacheWriter::write_header() {
  const RawHeader raw = {.width = static_cast<std::uint32_t>(header_.width),
                         .count = static_cast<std::uint64_t>(header_.count),
                         .fingerprint = header_.fingerprint};
  write(&raw, sizeof(raw));
}

PositionTable PositionTable::open(const fs::path& path) {
  const auto header = read_cache_header(path);
  if (!header || header->width != 8) {
    throw std::invalid_argument(fmt::format(
        "[data] '{}' is no table of positions. Remove it; it is made anew.",
        path.string()));
  }
  return PositionTable(MappedFile::open(path));
}

std::span<const std::int64_t> PositionTable::values() const {
  const auto content = file_.bytes().subspan(CacheHeader::kBytes);
  return {reinterpret_cast<const std::int64_t*>(content.data()),
          content.size() / sizeof(std::int64_t)};
}

}  // namespace accordion
