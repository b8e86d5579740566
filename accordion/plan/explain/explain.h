// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace accordion::plan {

/// One number with what it counts.
struct Figure {
  std::string what;
  std::string accounting;  ///< what is counted, in words
  double value = 0.0;      ///< from formulas or the planner
  std::string unit;        ///< "GB" is 1e9 bytes; "" for a ratio
  /// What the source states, in the same unit and accounting.
  std::optional<double> stated = std::nullopt;
};

/// A rule of thumb or a published example, recomputed.
///
/// // [Note: two accountings]
/// Texts about FSDP count differently: weights alone, 12 or 16 bytes a
/// parameter, one factor for all state. Each figure is reproduced under the
/// accounting of its source, and the full one (16 bytes a parameter, and the
/// planner's activations where they matter) stands beside it.
struct Explanation {
  std::string name;
  std::string title;
  std::string source;
  std::vector<Figure> figures;
  std::vector<std::string> conclusions;
};

/// The names that explain() takes.
[[nodiscard]] std::vector<std::string_view> explanation_names();

/// Throws std::invalid_argument that names the nearest name
Explanation explain(std::string_view name);

/// The figures as a table, and what follows from them.
std::string to_text(const Explanation& explanation);

}  // namespace accordion::plan
