// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>

#include "accordion/data/cache_file.h"
#include "accordion/data/sample_set.h"

namespace accordion {

/// [Note: packing]
/// Documents are laid into rows of seq_len tokens in the order of the data. A
/// document goes into the row begun if it fits there, else it begins the next
/// one. Only a document that fits no row is cut: it begins a row, and goes on
/// in the next ones, of which the last takes further documents.
///
/// So a row is one stretch of the stream; the table of rows holds where each
/// begins, and depends on the documents, seq_len and the part of the data
/// alone. What is guaranteed:
/// - each token but the first of its document is a target exactly once an
///   epoch, and no target lies in another document than its input;
/// - a document of up to seq_len + 1 tokens is never cut (of its last token
///   only the target is needed);
/// - rows are the same for every world size, batch size and seed.
/// Attention still sees the documents before in the same row.

/// Appends the first position of each row of documents in [begin, end), and
/// `end`, to a table of positions.
///
/// `documents` holds the first position of each document, ascending.
void pack_documents(std::span<const std::int64_t> documents, std::int64_t begin,
                    std::int64_t end, std::int64_t seq_len, CacheWriter& rows);

/// Rows of whole documents ([Note: packing]). What a row leaves empty has input
/// 0 and no target. A position is the number of a row.
class PackedDocuments : public SampleSet {
 public:
  /// `documents` and `rows` are what pack_documents read and wrote; they and
  /// the source outlive the set.
  PackedDocuments(const TokenSource& source,
                  std::span<const std::int64_t> documents,
                  std::span<const std::int64_t> rows, std::int64_t seq_len)
      : source_(source),
        documents_(documents),
        rows_(rows),
        seq_len_(seq_len) {}

  [[nodiscard]] std::int64_t seq_len() const override { return seq_len_; }
  [[nodiscard]] std::int64_t size() const override {
    return static_cast<std::int64_t>(rows_.size()) - 1;
  }
  [[nodiscard]] std::int64_t strided(std::int64_t g) const override {
    return g % size();
  }
  [[nodiscard]] std::int64_t in_epoch(std::int64_t index,
                                      std::uint64_t /*seed*/) const override {
    return index;
  }
  [[nodiscard]] std::int64_t spread(std::int64_t i,
                                    std::int64_t n) const override {
    return n > 1 ? i * (size() - 1) / (n - 1) : 0;
  }
  void read(std::int64_t position, SampleRow row) const override;
  [[nodiscard]] bool masks_targets() const override { return true; }

 private:
  const TokenSource& source_;
  std::span<const std::int64_t> documents_;
  std::span<const std::int64_t> rows_;  // [size + 1]
  std::int64_t seq_len_;
};

}  // namespace accordion
