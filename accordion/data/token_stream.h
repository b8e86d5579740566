// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "accordion/data/mapped_file.h"
#include "accordion/data/token_file.h"
#include "accordion/data/token_source.h"

namespace accordion {

struct TokenStreamOptions {
  /// Ids must be below; the model's.
  std::int64_t vocab_size = 256;
  /// Files mapped at a time, >= 1; the one not read for longest is unmapped.
  int max_open_files = 64;
};

/// The tokens of many files, end to end, in the order of the files.
///
/// Files are mapped when they are read, and only pages that are read are
/// loaded, so that memory does not grow with the data. Finding the file of a
/// position takes O(log files).
///
/// Threads  one at a time, reading too
class TokenStream : public TokenSource {
 public:
  /// Throws std::invalid_argument for options out of range
  TokenStream(std::vector<TokenFile> files, const TokenStreamOptions& options);

  [[nodiscard]] std::int64_t size() const override { return starts_.back(); }

  /// Throws std::runtime_error that names file and position: an id is not below
  ///        vocab_size, or the file is not as long any more as it was
  void read(std::int64_t begin, std::span<std::int64_t> out) const override;

  [[nodiscard]] std::span<const TokenFile> files() const { return files_; }
  /// First position of a file; of the file behind the last: size().
  [[nodiscard]] std::int64_t start_of(std::size_t file) const {
    return starts_[file];
  }
  /// Files that are mapped now.
  [[nodiscard]] std::size_t num_open() const { return open_.size(); }

 private:
  struct Open {
    std::size_t file;
    MappedFile mapping;
  };

  const MappedFile& mapping_of(std::size_t file) const;
  void read_file(std::size_t file, std::int64_t first,
                 std::span<std::int64_t> out) const;

  std::vector<TokenFile> files_;
  std::vector<std::int64_t> starts_;  // [files + 1]
  TokenStreamOptions options_;
  mutable std::vector<Open> open_;  // the one read last comes first
};

}  // namespace accordion
