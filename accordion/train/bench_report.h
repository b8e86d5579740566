// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "accordion/train/bench.h"

namespace accordion {

/// A result for a person: lines and a table, ending in a line break.
[[nodiscard]] std::string to_table(const BenchResult& result);

/// The same, and each step's time, loss and norm, as one JSON object.
[[nodiscard]] std::string to_json(const BenchResult& result);

}  // namespace accordion
