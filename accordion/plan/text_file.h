// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace accordion::plan {

/// The text of a file. `caller` begins messages: "[plan]".
///
/// Throws std::runtime_error if it cannot be read
[[nodiscard]] std::string read_text(const std::string& path,
                                    std::string_view caller);

/// The same, parsed. Throws std::invalid_argument too, if it is not JSON.
[[nodiscard]] nlohmann::json read_json(const std::string& path,
                                       std::string_view caller);

}  // namespace accordion::plan
