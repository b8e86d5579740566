// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "accordion/checkpoint/diff.h"
#include "accordion/checkpoint/text_table.h"

namespace accordion {
namespace {

using detail::printable;
using detail::shape_text;
using detail::TextTable;

/// The index of an element in each dim: "[1, 0, 3]".
std::string index_text(std::int64_t element,
                       const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> index(shape.size());
  for (std::size_t dim = shape.size(); dim-- > 0;) {
    index[dim] = element % shape[dim];
    element /= shape[dim];
  }
  return shape_text(index);
}

std::vector<std::string> cells_of(const TensorDifference& tensor) {
  std::vector<std::string> cells = {
      printable(tensor.name),
      tensor.dtype_a == tensor.dtype_b
          ? tensor.dtype_a
          : tensor.dtype_a + " | " + tensor.dtype_b,
      shape_text(tensor.shape),
      fmt::format("{} of {}", tensor.differing, tensor.numel)};
  if (!tensor.has_values) {
    cells.emplace_back("no numbers");
  } else if (tensor.at < 0) {
    cells.insert(cells.end(), {"0", "0"});
  } else {
    cells.insert(cells.end(), {fmt::format("{:.4g}", tensor.max_absolute),
                               fmt::format("{:.3g}", tensor.max_relative),
                               index_text(tensor.at, tensor.shape),
                               fmt::format("{:.9g}", tensor.a),
                               fmt::format("{:.9g}", tensor.b)});
  }
  return cells;
}

std::string tensors_text(const DiffReport& report, bool with_identical) {
  TextTable table("<<<>>><>>");
  table.add({"tensor", "dtype", "shape", "differing", "largest", "relative",
             "at", "a", "b"});
  bool is_empty = true;
  for (const TensorDifference& tensor : report.tensors) {
    if (with_identical || !tensor.is_identical()) {
      table.add(cells_of(tensor));
      is_empty = false;
    }
  }
  return is_empty ? "" : "\n" + table.text();
}

std::string names_text(std::string_view side,
                       const std::vector<std::string>& names) {
  if (names.empty()) {
    return "";
  }
  std::string text = fmt::format("\nonly in {}: {}\n", side, names.size());
  for (const std::string& name : names) {
    text += "  " + printable(name) + "\n";
  }
  return text;
}

std::string shapes_text(const DiffReport& report) {
  if (report.shapes.empty()) {
    return "";
  }
  TextTable table("<<<<");
  for (const ShapeDifference& tensor : report.shapes) {
    table.add({printable(tensor.name), shape_text(tensor.shape_a), "|",
               shape_text(tensor.shape_b)});
  }
  return fmt::format("\nof another shape: {}\n{}", report.shapes.size(),
                     table.text("  "));
}

std::string summary_text(const DiffReport& report,
                         std::optional<double> tolerance) {
  const auto identical =
      std::ranges::count_if(report.tensors, &TensorDifference::is_identical);
  std::string text =
      fmt::format("\n{} of {} tensors in both are the same, bit for bit",
                  identical, report.tensors.size() + report.shapes.size());
  if (tolerance) {
    const auto within =
        std::ranges::count_if(report.tensors, [&](const auto& tensor) {
          return !tensor.is_identical() && is_same(tensor, tolerance);
        });
    text += fmt::format("; {} more differ by at most {}", within, *tolerance);
  }
  if (report.left_out > 0) {
    text += fmt::format(
        "; {} of optimizer and rng were left out, as plain weights have none",
        report.left_out);
  }
  return text + "\n";
}

}  // namespace

std::string to_text(const DiffReport& report, std::optional<double> tolerance,
                    bool with_identical) {
  return fmt::format("a  {}\nb  {}\n", report.path_a, report.path_b) +
         tensors_text(report, with_identical) + shapes_text(report) +
         names_text("a", report.only_a) + names_text("b", report.only_b) +
         summary_text(report, tolerance);
}

}  // namespace accordion
