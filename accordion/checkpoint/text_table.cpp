// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/text_table.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace accordion::detail {

void TextTable::add(std::vector<std::string> cells) {
  cells.resize(alignments_.size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::text(std::string_view indent) const {
  std::vector<std::size_t> widths(alignments_.size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line(indent);
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - row[i].size(), ' ');
      line += i == 0 ? "" : "  ";
      line += alignments_[i] == '<' ? row[i] + padding : padding + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string bytes_text(std::int64_t bytes) {
  constexpr double kUnit = 1024.0;
  const auto value = static_cast<double>(bytes);
  if (value < kUnit) {
    return fmt::format("{} B", bytes);
  }
  if (value < kUnit * kUnit) {
    return fmt::format("{:.1f} KiB", value / kUnit);
  }
  if (value < kUnit * kUnit * kUnit) {
    return fmt::format("{:.1f} MiB", value / (kUnit * kUnit));
  }
  return fmt::format("{:.2f} GiB", value / (kUnit * kUnit * kUnit));
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string printable(std::string_view text) {
  std::string result(text);
  std::ranges::replace_if(
      result,
      [](char c) {
        const auto code = static_cast<unsigned char>(c);
        return code < 0x20 || code == 0x7f;
      },
      '?');
  return result;
}

}  // namespace accordion::detail
