// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace accordion::detail {

/// Parses JSON from a file that is not trusted: one object, at most
/// `max_depth` objects and arrays within each other, no name twice in one
/// object (a parser alone keeps the last). `file` stands for it in errors.
///
/// Throws CheckpointError
nlohmann::json parse_checked_json(std::string_view text,
                                  const std::string& file, int max_depth);

/// Content of such a file as an error may show it: on one line, and cut where
/// it is long.
std::string shown(std::string_view text);
std::string shown_json(const nlohmann::json& value);

/// Whether a name from such a file is that of a file in the same folder, and
/// leads nowhere else. Hidden files are none of ours.
bool is_file_name(std::string_view name);

}  // namespace accordion::detail
