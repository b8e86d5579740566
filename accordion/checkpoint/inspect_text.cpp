// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "accordion/checkpoint/inspect.h"
#include "accordion/checkpoint/rank_pieces.h"
#include "accordion/checkpoint/text_table.h"

namespace accordion {
namespace {

using detail::bytes_text;
using detail::printable;
using detail::shape_text;
using detail::TextTable;

/// A value that is longer than this is not part of a table.
constexpr std::size_t kMaxValueWidth = 60;
/// More files than this are given as a number.
constexpr std::size_t kMaxFiles = 8;

std::string plural(std::size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string source_text(const InspectReport& report) {
  std::string text =
      fmt::format("{}  {}", report.is_checkpoint ? "checkpoint" : "weights   ",
                  report.path);
  if (report.newest_of > 0) {
    text += fmt::format("  (the newest of {})",
                        plural(static_cast<std::size_t>(report.newest_of),
                               "complete checkpoint"));
  }
  text += "\n";
  if (report.step) {
    text += fmt::format("step        {}\n", *report.step);
  }
  if (report.is_checkpoint) {
    text += fmt::format("world size  {}\n", report.world_size);
  }
  return text;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(printable(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

bool is_long(const CheckpointValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  return text != nullptr && (text->size() > kMaxValueWidth ||
                             text->find('\n') != std::string::npos);
}

std::string short_text(const CheckpointValue& value) {
  if (is_long(value)) {
    return fmt::format(
        "({}; --values prints it)",
        plural(lines_of(std::get<std::string>(value)).size(), "line"));
  }
  const auto to_cell = [](const auto& content) {
    return printable(fmt::format("{}", content));
  };
  return std::visit(to_cell, value);
}

std::string values_text(const InspectReport& report, bool whole) {
  if (report.values.empty()) {
    return "";
  }
  TextTable table("<<");
  std::string texts;
  for (const auto& [name, value] : report.values) {
    if (!whole || !is_long(value)) {
      table.add({printable(name), short_text(value)});
      continue;
    }
    texts += "  " + printable(name) + "\n";
    for (const std::string& line : lines_of(std::get<std::string>(value))) {
      texts += "    " + line + "\n";
    }
  }
  return (report.is_checkpoint ? "values\n" : "metadata\n") + table.text("  ") +
         texts;
}

std::string files_text(const InspectReport& report) {
  std::int64_t total = 0;
  std::int64_t least = INT64_MAX;
  std::int64_t most = 0;
  TextTable table("<>");
  for (const FileReport& file : report.files) {
    total += file.bytes;
    least = std::min(least, file.bytes);
    most = std::max(most, file.bytes);
    table.add({printable(file.name), bytes_text(file.bytes)});
  }
  std::string text =
      fmt::format("files       {}, {}", report.files.size(), bytes_text(total));
  if (report.files.size() > kMaxFiles) {
    return text + fmt::format(", each {} to {}\n", bytes_text(least),
                              bytes_text(most));
  }
  return text + "\n" + table.text("  ");
}

std::string verification_text(const InspectReport& report) {
  if (!report.is_checkpoint) {
    return "verified    no: these files have no checksums\n";
  }
  if (!report.verified) {
    return "verified    no\n";
  }
  return fmt::format(
      "verified    {} in {:.2f} s: every block has its checksum\n",
      bytes_text(report.verified->bytes), report.verified->seconds);
}

void append_statistics(const TensorReport& tensor,
                       std::vector<std::string>& cells) {
  if (!tensor.statistics) {
    cells.emplace_back("no numbers");
    return;
  }
  const TensorStatistics& found = *tensor.statistics;
  for (const double value : {found.min, found.max, found.mean, found.rms}) {
    cells.push_back(found.finite == 0 ? "-" : fmt::format("{:.4g}", value));
  }
  cells.push_back(fmt::format("{}", found.nan));
  cells.push_back(fmt::format("{}", found.infinite));
}

std::string tensors_text(const InspectReport& report) {
  TextTable table(report.with_statistics ? "<<<>>>>>>>><" : "<<<>><");
  std::vector<std::string> head = {"tensor", "dtype", "shape", "elements",
                                   "bytes"};
  if (report.with_statistics) {
    head.insert(head.end(), {"min", "max", "mean", "rms", "NaN", "inf"});
  }
  head.emplace_back(report.is_checkpoint ? "each rank" : "");
  table.add(head);
  const std::vector<int> ranks = detail::ranks_of(report);
  for (const TensorReport& tensor : report.tensors) {
    const TensorInfo& info = tensor.info;
    std::vector<std::string> cells = {
        printable(info.name), info.dtype, shape_text(info.shape),
        fmt::format("{}", info.numel), bytes_text(info.bytes)};
    if (report.with_statistics) {
      append_statistics(tensor, cells);
      cells.resize(head.size() - 1);
    }
    cells.push_back(detail::each_rank_text(tensor, ranks));
    table.add(std::move(cells));
    for (const std::string& alias : tensor.aliases) {
      table.add({"  also " + printable(alias)});
    }
  }
  return table.text();
}

std::string totals_text(const InspectReport& report) {
  TextTable table("<>>>");
  table.add({"kind", "tensors", "elements", "bytes"});
  for (const auto& [kind, total] : report.totals) {
    table.add({printable(kind), fmt::format("{}", total.tensors),
               fmt::format("{}", total.numel), bytes_text(total.bytes)});
  }
  return table.text();
}

std::string pieces_text(const TensorReport& tensor) {
  const std::int64_t row = detail::row_numel(tensor);
  TextTable table(row > 0 ? "<<<<>" : "<<<>");
  const auto add = [&](std::vector<std::string> cells, std::string rows) {
    if (row > 0) {
      cells.insert(cells.begin() + 1, std::move(rows));
    }
    table.add(std::move(cells));
  };
  add({"elements", "rank", "file", "at byte"}, "rows");
  for (const TensorPiece& piece : tensor.pieces) {
    const std::int64_t divisor = std::max<std::int64_t>(row, 1);
    add({detail::range_text(piece.begin, piece.end),
         piece.rank ? fmt::format("{}", *piece.rank) : "-",
         printable(piece.file), fmt::format("{}", piece.offset)},
        detail::range_text(piece.begin / divisor, piece.end / divisor));
  }
  return table.text();
}

}  // namespace

std::string to_text(const InspectReport& report, bool with_whole_values) {
  return source_text(report) + verification_text(report) + files_text(report) +
         values_text(report, with_whole_values) + "\n" + tensors_text(report) +
         "\n" + totals_text(report);
}

std::string to_tensor_text(const InspectReport& report) {
  const TensorReport& tensor = report.tensors.front();
  const std::vector<int> ranks = detail::ranks_of(report);
  std::string text = source_text(report) + verification_text(report) + "\n" +
                     tensors_text(report) + "\n" + pieces_text(tensor);
  const std::string bars = detail::rank_bars(tensor, ranks);
  return bars.empty() ? text : text + "\n" + bars;
}

}  // namespace accordion
