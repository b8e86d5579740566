// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "accordion/plan/validate.h"

namespace accordion::plan {

/// The results of a row that publishes model states under a formula of the ZeRO
/// paper or of DeepSpeed's estimators; none for any other row.
std::vector<RowResult> validate_formulas(const nlohmann::json& row);

}  // namespace accordion::plan
