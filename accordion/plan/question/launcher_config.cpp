// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/question/launcher_config.h"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "accordion/plan/nearest_name.h"

namespace accordion::plan {

using nlohmann::json;

namespace {

/// As JSON; bytes that are no UTF-8, which YAML lets through, are replaced.
std::string shown(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

LauncherValues::LauncherValues(const json& settings, std::string prefix)
    : prefix_(std::move(prefix)) {
  if (!settings.is_object()) {
    fail("The settings must be an object.");
  }
  add("", settings);
}

void LauncherValues::add(const std::string& path, const json& value) {
  if (!value.is_object()) {
    values_.emplace(path, value);
    return;
  }
  for (const auto& [key, inner] : value.items()) {
    add(path.empty() ? key : path + "." + key, inner);
  }
}

std::optional<json> LauncherValues::take(const std::string& path) {
  const auto found = values_.find(path);
  if (found == values_.end()) {
    return std::nullopt;
  }
  std::optional<json> value(std::move(found->second));
  values_.erase(found);
  if (*value == "auto") {
    automatic_.push_back(path);
    return std::nullopt;
  }
  if (value->is_null()) {
    return std::nullopt;
  }
  return value;
}

bool LauncherValues::is_automatic(const std::string& path) const {
  return std::find(automatic_.begin(), automatic_.end(), path) !=
         automatic_.end();
}

std::optional<bool> LauncherValues::take_bool(const std::string& path) {
  const auto value = take(path);
  if (value && !value->is_boolean()) {
    fail(fmt::format("'{}' is {}, but must be true or false.", path,
                     shown(*value)));
  }
  return value ? std::optional(value->get<bool>()) : std::nullopt;
}

std::optional<std::int64_t> LauncherValues::take_count(
    const std::string& path) {
  const auto value = take(path);
  if (!value) {
    return std::nullopt;
  }
  const double number = value->is_number() ? value->get<double>() : -1.0;
  if (number < 0.0 || number > 9e15 ||
      number != static_cast<double>(static_cast<std::int64_t>(number))) {
    fail(fmt::format("'{}' is {}, but must be a whole number of at least 0.",
                     path, shown(*value)));
  }
  return static_cast<std::int64_t>(number);
}

std::optional<std::string> LauncherValues::take_text(const std::string& path) {
  const auto value = take(path);
  if (value && !value->is_string()) {
    fail(fmt::format("'{}' is {}, but must be a text.", path, shown(*value)));
  }
  return value ? std::optional(value->get<std::string>()) : std::nullopt;
}

std::optional<std::size_t> LauncherValues::take_choice(
    const std::string& path, const std::vector<std::string_view>& choices) {
  const auto text = take_text(path);
  if (!text) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (normalized(choices[i]) == normalized(*text)) {
      return i;
    }
  }
  fail(fmt::format("'{}' is '{}', but must be one of {}; the nearest is '{}'.",
                   path, *text, fmt::join(choices, ", "),
                   nearest_name(*text, choices)));
}

std::vector<std::string> LauncherValues::notes() const {
  std::vector<std::string> sentences;
  if (!values_.empty()) {
    std::vector<std::string> names;
    for (const auto& [path, value] : values_) {
      names.push_back(path);
    }
    sentences.push_back(
        fmt::format("{}these keys have no meaning for a plan: {}.", prefix_,
                    fmt::join(names, ", ")));
  }
  if (!automatic_.empty()) {
    sentences.push_back(fmt::format(
        "{}these keys are \"auto\" and keep the planner's defaults: {}.",
        prefix_, fmt::join(automatic_, ", ")));
  }
  return sentences;
}

void LauncherValues::fail(const std::string& what) const {
  throw std::invalid_argument(prefix_ + what);
}

}  // namespace accordion::plan
