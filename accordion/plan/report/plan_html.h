// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string>

#include "accordion/plan/report/comparison.h"
#include "accordion/plan/report/plan_report.h"

namespace accordion::plan {

/// One page that needs nothing else, no network and no script: the table, and
/// of each plan its memory over the step, its streams, and what to change.
std::string to_html(const std::string& title, const TableRows& table,
                    std::span<const PlanReport> reports);

}  // namespace accordion::plan
