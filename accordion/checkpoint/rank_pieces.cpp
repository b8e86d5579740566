// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/rank_pieces.h"

#include <algorithm>
#include <map>
#include <string_view>

#include <fmt/format.h>

namespace accordion::detail {
namespace {

bool knows_ranks(const TensorReport& tensor) {
  return std::ranges::all_of(tensor.pieces, [](const TensorPiece& piece) {
    return piece.rank.has_value();
  });
}

/// Elements of each of `ranks`.
std::vector<std::int64_t> counts(const TensorReport& tensor,
                                 const std::vector<int>& ranks) {
  std::map<int, std::int64_t> of_rank;
  for (const TensorPiece& piece : tensor.pieces) {
    of_rank[*piece.rank] += piece.end - piece.begin;
  }
  std::vector<std::int64_t> result;
  for (const int rank : ranks) {
    result.push_back(of_rank[rank]);
  }
  return result;
}

/// "3 x 4, 2".
std::string run_lengths(const std::vector<std::int64_t>& values) {
  std::string text;
  for (std::size_t i = 0; i < values.size();) {
    std::size_t end = i;
    while (end < values.size() && values[end] == values[i]) {
      ++end;
    }
    text += text.empty() ? "" : ", ";
    text += end - i > 1 ? fmt::format("{} x {}", end - i, values[i])
                        : fmt::format("{}", values[i]);
    i = end;
  }
  return text;
}

struct BarLine {
  int rank = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;  ///< `begin`: nothing

  [[nodiscard]] bool is_empty() const { return begin == end; }
};

std::vector<BarLine> bar_lines(const TensorReport& tensor,
                               const std::vector<int>& ranks) {
  std::vector<BarLine> lines;
  for (const int rank : ranks) {
    const std::size_t before = lines.size();
    for (const TensorPiece& piece : tensor.pieces) {
      if (piece.rank == rank && piece.begin < piece.end) {
        lines.push_back({rank, piece.begin, piece.end});
      }
    }
    if (lines.size() == before) {
      lines.push_back({.rank = rank});
    }
  }
  return lines;
}

/// The cell of a bar in which a fraction of the tensor ends.
std::size_t cell(std::int64_t element, std::int64_t numel, std::size_t cells) {
  const double fraction =
      static_cast<double>(element) / static_cast<double>(numel);
  return static_cast<std::size_t>(fraction * static_cast<double>(cells) + 0.5);
}

/// At least one cell is set, however small the piece.
std::string bar(const BarLine& line, std::int64_t numel, std::size_t cells) {
  std::string text(cells, '.');
  if (line.is_empty()) {
    return text;
  }
  const std::size_t begin = std::min(cell(line.begin, numel, cells), cells - 1);
  const std::size_t end = std::max(cell(line.end, numel, cells), begin + 1);
  std::fill(text.begin() + static_cast<std::ptrdiff_t>(begin),
            text.begin() + static_cast<std::ptrdiff_t>(end), '#');
  return text;
}

}  // namespace

std::vector<int> ranks_of(const InspectReport& report) {
  std::vector<int> ranks;
  for (const FileReport& file : report.files) {
    if (file.rank) {
      ranks.push_back(*file.rank);
    }
  }
  std::ranges::sort(ranks);
  return ranks;
}

std::int64_t row_numel(const TensorReport& tensor) {
  std::int64_t row = 1;
  const std::vector<std::int64_t>& shape = tensor.info.shape;
  for (std::size_t dim = 1; dim < shape.size(); ++dim) {
    row *= shape[dim];
  }
  const bool has_rows =
      row > 1 && std::ranges::all_of(tensor.pieces, [row](const auto& piece) {
        return piece.begin % row == 0;  // where the piece before it ends
      });
  return has_rows ? row : 0;
}

std::string range_text(std::int64_t begin, std::int64_t end) {
  return fmt::format("[{}, {})", begin, end);
}

std::string each_rank_text(const TensorReport& tensor,
                           const std::vector<int>& ranks) {
  if (tensor.info.numel == 0 || !knows_ranks(tensor)) {
    return "";
  }
  std::vector<std::int64_t> values = counts(tensor, ranks);
  const auto whole = std::ranges::find(values, tensor.info.numel);
  if (whole != values.end()) {
    const auto at = static_cast<std::size_t>(whole - values.begin());
    return fmt::format("all on rank {}", ranks[at]);
  }
  const std::int64_t row = row_numel(tensor);
  for (std::int64_t& value : values) {
    value /= row > 0 ? row : 1;
  }
  return (row > 0 ? "rows " : "elements ") + run_lengths(values);
}

std::string rank_bars(const TensorReport& tensor,
                      const std::vector<int>& ranks) {
  if (ranks.empty() || !knows_ranks(tensor)) {
    return "";
  }
  constexpr std::size_t kMinCells = 10;
  const std::int64_t numel = std::max<std::int64_t>(tensor.info.numel, 1);
  const std::vector<BarLine> lines = bar_lines(tensor, ranks);
  std::vector<std::string> ranges;
  std::size_t range_width = 0;
  for (const BarLine& line : lines) {
    ranges.push_back(line.is_empty() ? "empty"
                                     : range_text(line.begin, line.end));
    range_width = std::max(range_width, ranges.back().size());
  }
  const std::size_t rank_width = fmt::format("{}", ranks.back()).size();
  // "rank R  [" cells "]  " range "  100.0 %"
  const std::size_t taken = 9 + rank_width + range_width + 9 + 2;
  const std::size_t cells = std::max(kBarLineWidth, taken + kMinCells) - taken;
  std::string text;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const BarLine& line = lines[i];
    const double percent = 100.0 * static_cast<double>(line.end - line.begin) /
                           static_cast<double>(numel);
    text += fmt::format("rank {:>{}}  [{}]  {:<{}}  {:5.1f} %\n", line.rank,
                        rank_width, bar(line, numel, cells), ranges[i],
                        range_width, percent);
  }
  return text;
}

}  // namespace accordion::detail
