// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/data/packed_documents.h"

#include <algorithm>
#include <vector>

namespace accordion {
namespace {

/// Cuts a stretch of documents into rows, see [Note: packing].
class Rows {
 public:
  Rows(std::int64_t begin, std::int64_t seq_len, CacheWriter& table)
      : row_(begin), seq_len_(seq_len), table_(table) {
    begin_row(begin);
  }

  void add(std::int64_t begin, std::int64_t end) {
    if (begin > row_ && !holds(end)) {
      begin_row(begin);
    }
    while (!holds(end)) {
      begin_row(row_ + seq_len_);
    }
  }

 private:
  /// The last token of a row may be a target only.
  [[nodiscard]] bool holds(std::int64_t end) const {
    return end - row_ <= seq_len_ + 1;
  }
  void begin_row(std::int64_t at) {
    row_ = at;
    table_.append(static_cast<std::uint64_t>(at));
  }

  std::int64_t row_;
  std::int64_t seq_len_;
  CacheWriter& table_;
};

}  // namespace

void pack_documents(std::span<const std::int64_t> documents, std::int64_t begin,
                    std::int64_t end, std::int64_t seq_len, CacheWriter& rows) {
  Rows cut(begin, seq_len, rows);
  // What a part begins or ends with may be a part of a document.
  auto next = std::ranges::upper_bound(documents, begin);
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t stop =
        next == documents.end() ? end : std::min(*next++, end);
    cut.add(at, stop);
    at = stop;
  }
  rows.append(static_cast<std::uint64_t>(end));
}

void PackedDocuments::read(std::int64_t position, SampleRow row) const {
  const std::int64_t begin = rows_[static_cast<std::size_t>(position)];
  const std::int64_t end = rows_[static_cast<std::size_t>(position) + 1];
  const std::int64_t filled = std::min(end - begin, seq_len_);
  // One token more than the inputs, unless the part of the data ends there.
  const std::int64_t seen = std::min(filled + 1, rows_.back() - begin);
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(seen));
  source_.read(begin, tokens);
  std::ranges::fill(row.inputs, 0);
  std::ranges::fill(row.targets, kNoTarget);
  std::copy_n(tokens.begin(), filled, row.inputs.begin());
  std::copy(tokens.begin() + 1, tokens.end(), row.targets.begin());
  for (auto first = std::ranges::upper_bound(documents_, begin);
       first != documents_.end() && *first <= begin + filled; ++first) {
    row.targets[static_cast<std::size_t>(*first - begin - 1)] = kNoTarget;
  }
}

}  // namespace accordion
