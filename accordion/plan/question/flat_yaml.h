// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace accordion::plan {

/// The part of YAML that settings files of launchers use: maps nested by
/// indentation, one KEY: VALUE a line, texts plain or in quotes, numbers,
/// true/false, null, empty {} and [], comments. Lists are texts.
///
/// Throws std::invalid_argument that names the line of anything else
nlohmann::json parse_flat_yaml(std::string_view text, std::string_view source);

}  // namespace accordion::plan
