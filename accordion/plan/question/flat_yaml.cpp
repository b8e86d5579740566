// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/question/flat_yaml.h"

#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace accordion::plan {
namespace {

using nlohmann::json;

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) {
    return {};
  }
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

/// Without a comment: a # at the begin or behind a space, outside of quotes.
std::string_view without_comment(std::string_view line) {
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (quote != 0) {
      quote = line[i] == quote ? char{0} : quote;
    } else if (line[i] == '\'' || line[i] == '"') {
      quote = line[i];
    } else if (line[i] == '#' && (i == 0 || line[i - 1] == ' ')) {
      return line.substr(0, i);
    }
  }
  return line;
}

json scalar(std::string_view text) {
  if (text.size() >= 2 && (text.front() == '\'' || text.front() == '"') &&
      text.back() == text.front()) {
    return std::string(text.substr(1, text.size() - 2));
  }
  for (const std::string_view yes : {"true", "True", "TRUE"}) {
    if (text == yes) {
      return true;
    }
  }
  for (const std::string_view no : {"false", "False", "FALSE"}) {
    if (text == no) {
      return false;
    }
  }
  if (text == "null" || text == "~" || text == "Null" || text == "None") {
    return nullptr;
  }
  const json value = json::parse(text, nullptr, false);
  return value.is_number() || value == json::object() || value == json::array()
             ? value
             : json(std::string(text));
}

struct Level {
  std::size_t indent;
  json* map;
};

}  // namespace

json parse_flat_yaml(std::string_view text, std::string_view source) {
  json root = json::object();
  std::vector<Level> levels = {{0, &root}};
  json* opened = nullptr;  // the value of a key with nothing behind it
  for (int number = 1; !text.empty(); ++number) {
    const auto end = std::min(text.find('\n'), text.size());
    const std::string_view line = without_comment(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string_view words = trimmed(line);
    if (words.empty() || words == "---") {
      continue;
    }
    const auto fail = [&](std::string_view what) {
      throw std::invalid_argument(
          fmt::format("[yaml] {}:{}: {}", source, number, what));
    };
    const std::size_t indent = line.find_first_not_of(' ');
    if (words.starts_with("- ") || words == "-") {
      if (opened == nullptr) {
        fail("A list is only read behind its key.");
      }
      if (opened->is_null()) {
        *opened = json::array();
      }
      opened->push_back(scalar(trimmed(words.substr(1))));
      continue;
    }
    if (opened != nullptr && opened->is_null() &&
        indent > levels.back().indent) {
      *opened = json::object();
      levels.push_back({indent, opened});
    }
    while (levels.size() > 1 && indent < levels.back().indent) {
      levels.pop_back();
    }
    if (indent != levels.back().indent) {
      fail("The indentation is that of no map around it.");
    }
    const auto colon = words.find(':');
    if (colon == std::string_view::npos || colon == 0 ||
        (colon + 1 < words.size() && words[colon + 1] != ' ')) {
      fail("It is no 'key: value'.");
    }
    const std::string key(trimmed(words.substr(0, colon)));
    const std::string_view value = trimmed(words.substr(colon + 1));
    json& slot = (*levels.back().map)[key];
    slot = value.empty() ? json() : scalar(value);
    opened = value.empty() ? &slot : nullptr;
  }
  return root;
}

}  // namespace accordion::plan
