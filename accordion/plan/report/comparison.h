// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string>
#include <vector>

#include "accordion/plan/report/plan_report.h"
#include "accordion/plan/search/limits.h"
#include "accordion/plan/search/search.h"

namespace accordion::plan {

/// Cells of a table; the first row is its head.
using TableRows = std::vector<std::vector<std::string>>;

/// A plan a column, a property a line. Requires at least one report.
TableRows compared(std::span<const PlanReport> reports);

/// A plan a line, fastest first.
TableRows listed(std::span<const FoundPlan> plans);

/// A setting a line: parameters, GPUs, memory and speed at the limit.
TableRows listed(std::span<const Limit> limits);

/// Columns of equal width: words to the left, numbers to the right.
std::string to_text(const TableRows& rows);

}  // namespace accordion::plan
