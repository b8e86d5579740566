// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/checkpoint/checked_json.h"

#include <set>
#include <vector>

#include <fmt/format.h>

#include "accordion/checkpoint/checkpoint_error.h"

namespace accordion::detail {

using nlohmann::json;

namespace {

constexpr std::size_t kMaxShown = 200;

std::string cut(std::string text) {
  if (text.size() > kMaxShown) {
    text.resize(kMaxShown);
    text += "...";
  }
  return text;
}

}  // namespace

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
        fail(fmt::format("'{}' appears twice in its object", shown(name)));
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
    fail(fmt::format("it is not JSON ({})", shown(error.what())));
  }
  if (!object.is_object()) {
    fail("it is not a JSON object");
  }
  return object;
}

std::string shown(std::string_view text) {
  // Cut before it is copied, and after it grew.
  const json value = text.substr(0, kMaxShown + 1);
  const std::string quoted =
      value.dump(-1, ' ', false, json::error_handler_t::replace);
  return cut(quoted.substr(1, quoted.size() - 2));
}

std::string shown_json(const json& value) {
  return cut(value.dump(-1, ' ', false, json::error_handler_t::replace));
}

bool is_file_name(std::string_view name) {
  return !name.empty() && name.front() != '.' &&
         name.find_first_of(std::string_view("/\\\0", 3)) ==
             std::string_view::npos;
}

}  // namespace accordion::detail
