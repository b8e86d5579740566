// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/checked_json.h"

#include <set>
#include <vector>

#include <fmt/format.h>

#include "accordion/checkpoint/checkpoint_error.h"

namespace accordion::detail {

using nlohmann::json;

json parse_checked_json(std::string_view text, const std::string& file,
                        int max_depth) {
  const auto fail = [&](const std::string& what) {
    throw CheckpointError(fmt::format(
        "[checkpoint] '{}': {}. The file is damaged or of another kind; write "
        "or download it again.",
        file, what));
  };
  std::vector<std::set<std::string>> names;
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) {
      names.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      names.pop_back();
    } else if (event == json::parse_event_t::key) {
      auto name = parsed.get<std::string>();
      if (!names.back().insert(name).second) {
        fail(fmt::format("'{}' appears twice in its object", name));
      }
    }
    if ((event == json::parse_event_t::object_start ||
         event == json::parse_event_t::array_start) &&
        depth >= max_depth) {
      fail(fmt::format("more than {} objects and arrays within each other",
                       max_depth));
    }
    return true;
  };
  json object;
  try {
    object = json::parse(text, watch);
  } catch (const json::exception& error) {
    fail(fmt::format("it is not JSON ({})", error.what()));
  }
  if (!object.is_object()) {
    fail("it is not a JSON object");
  }
  return object;
}

}  // namespace accordion::detail
