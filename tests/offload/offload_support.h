// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "accordion/offload/nvme_store.h"
#include "accordion/offload/offload_store.h"

namespace accordion::testing {

/// The word at byte i of a block in its n-th version: no two words, blocks or
/// versions of a test are alike, nor are first bytes. Version 0 is zeros: a
/// block that was never written.
inline std::uint64_t word_of(int block, int version, std::size_t i) {
  const auto which = static_cast<std::uint64_t>(131 * version + 17 * block);
  return version == 0 ? 0 : which + (std::uint64_t{i} << 24);
}

/// Calls `visit(i, bytes, word)` for each word of which the bytes are made; the
/// last one may be cut short.
template <typename Bytes, typename Visit>
void for_each_word(Bytes bytes, int block, int version, Visit visit) {
  for (std::size_t i = 0; i < bytes.size(); i += sizeof(std::uint64_t)) {
    visit(i,
          bytes.subspan(i, std::min(sizeof(std::uint64_t), bytes.size() - i)),
          word_of(block, version, i));
  }
}

inline void fill(std::span<std::byte> bytes, int block, int version) {
  for_each_word(bytes, block, version,
                [](std::size_t, std::span<std::byte> part, std::uint64_t word) {
                  std::memcpy(part.data(), &word, part.size());
                });
}

/// The offset of the first word that differs from that of a version, or the
/// number of bytes.
inline std::size_t first_difference(std::span<const std::byte> bytes, int block,
                                    int version) {
  std::size_t first = bytes.size();
  for_each_word(
      bytes, block, version,
      [&](std::size_t i, std::span<const std::byte> part, std::uint64_t word) {
        if (first == bytes.size() &&
            std::memcmp(part.data(), &word, part.size()) != 0) {
          first = i;
        }
      });
  return first;
}

inline void expect_version(std::span<const std::byte> bytes, int block,
                           int version) {
  EXPECT_EQ(first_difference(bytes, block, version), bytes.size())
      << "block " << block << " is not of version " << version
      << " from that byte on";
}

/// Memory that transfers may use.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::int64_t bytes)
      : size_(static_cast<std::size_t>(offload_aligned(bytes))),
        data_(static_cast<std::byte*>(
                  std::aligned_alloc(kOffloadAlignment, size_ + 4096)),
              std::free) {}
  [[nodiscard]] std::span<std::byte> get() const {
    return {data_.get(), size_};
  }

 private:
  std::size_t size_;
  std::unique_ptr<std::byte, void (*)(void*)> data_;
};

/// A store made by each way that NvmeStore has to move bytes.
struct NvmeKind {
  const char* name;
  NvmeIo io;
  bool direct;
};
inline constexpr NvmeKind kNvmeKinds[] = {
    {"uring", NvmeIo::Uring, true},
    {"threads", NvmeIo::Threads, true},
    {"page_cache", NvmeIo::Threads, false},
};

/// Why this kind cannot be tried here; empty where it can.
inline std::string why_not(const NvmeKind& kind,
                           const std::filesystem::path& folder) {
  if (kind.io != NvmeIo::Uring) {
    return {};
  }
  try {
    (void)make_nvme_store(
        {.folder = folder, .block_bytes = {1}, .io = NvmeIo::Uring});
    return {};
  } catch (const OffloadError& refused) {
    return refused.what();
  }
}

/// No file of this process grows beyond `bytes` meanwhile.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
};

/// The message of the error that `call` throws.
template <typename Error, typename Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace accordion::testing
