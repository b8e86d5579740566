// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// What reports for people are made of.
namespace accordion::detail {

/// Rows of cells in columns, as wide as their widest cell.
class TextTable {
 public:
  /// One character a column: '<' to the left, '>' to the right.
  explicit TextTable(std::string alignments)
      : alignments_(std::move(alignments)) {}

  /// Adds a row; cells that are missing at its end are empty.
  void add(std::vector<std::string> cells);

  /// Lines without spaces at their ends, each after `indent`.
  [[nodiscard]] std::string text(std::string_view indent = "") const;

 private:
  std::string alignments_;
  std::vector<std::vector<std::string>> rows_;
};

/// "3.0 MiB".
std::string bytes_text(std::int64_t bytes);

/// "[2, 3]".
std::string shape_text(const std::vector<std::int64_t>& shape);

/// A line of text from a file that is not trusted, for a terminal: what could
/// move its cursor becomes '?'.
std::string printable(std::string_view text);

}  // namespace accordion::detail
