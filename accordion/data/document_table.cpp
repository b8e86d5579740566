// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/data/document_table.h"

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "accordion/data/mapped_file.h"
#include "accordion/data/token_cache.h"

namespace accordion {
namespace {

constexpr std::int64_t kBlock = 1 << 16;

void check(const std::stop_token& stop) {
  if (stop.stop_requested()) {
    throw std::runtime_error(
        "[data] The search for documents was "
        "interrupted.");
  }
}

/// Appends positions that ascend, each once, all of them within the stream.
class Starts {
 public:
  Starts(CacheWriter& table, std::int64_t end) : table_(table), end_(end) {}

  void add(std::int64_t position) {
    if (position > last_ && position < end_) {
      table_.append(static_cast<std::uint64_t>(position));
      last_ = position;
    }
  }

 private:
  CacheWriter& table_;
  std::int64_t end_;
  std::int64_t last_ = -1;
};

/// Documents of one file by begin and end ids.
void find_by_ids(const TokenStream& stream, std::size_t file,
                 const DocumentMarks& marks, Starts& starts,
                 const std::stop_token& stop) {
  std::vector<std::int64_t> block;
  const std::int64_t end = stream.start_of(file + 1);
  for (std::int64_t at = stream.start_of(file); at < end; at += kBlock) {
    check(stop);
    block.resize(static_cast<std::size_t>(std::min(kBlock, end - at)));
    stream.read(at, block);
    for (std::size_t i = 0; i < block.size(); ++i) {
      const std::int64_t position = at + static_cast<std::int64_t>(i);
      if (block[i] == marks.bos) {
        starts.add(position);
      }
      if (block[i] == marks.eos) {
        starts.add(position + 1);
      }
    }
  }
}

/// Documents of one file of bytes by their separator, which is the end of each.
void find_by_separator(const TokenStream& stream, std::size_t file,
                       const DocumentMarks& marks, Starts& starts,
                       const std::stop_token& stop) {
  const MappedFile mapping = MappedFile::open(stream.files()[file].path);
  std::string_view rest = mapping.text();
  while (!rest.empty()) {
    check(stop);
    take_document(rest, marks.separator);
    starts.add(stream.start_of(file + 1) -
               static_cast<std::int64_t>(rest.size()));
  }
}

}  // namespace

void find_documents(const TokenStream& stream, const DocumentMarks& marks,
                    CacheWriter& table, const std::stop_token& stop) {
  Starts starts(table, stream.size());
  starts.add(0);
  for (std::size_t file = 0; file < stream.files().size(); ++file) {
    if (marks.at_files) {
      starts.add(stream.start_of(file));
    }
    if (marks.bos || marks.eos) {
      find_by_ids(stream, file, marks, starts, stop);
    }
    if (!marks.separator.empty()) {
      find_by_separator(stream, file, marks, starts, stop);
    }
  }
}

}  // namespace accordion
