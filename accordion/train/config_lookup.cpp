// SPDX-License-Identifier: BSD-3-Clause
//
// What is asked of the keys that config_keys.cpp declares.
#include <algorithm>

#include <fmt/format.h>

#include "accordion/plan/nearest_name.h"
#include "accordion/train/config_keys.h"

namespace accordion {

bool ConfigRange::contains(double value) const {
  const bool above_low = low_open ? value > low : value >= low;
  const bool below_high = high_open ? value < high : value <= high;
  return above_low && below_high;
}

std::string ConfigRange::describe() const {
  std::string text;
  if (low > -std::numeric_limits<double>::infinity()) {
    text = fmt::format("{} {}", low_open ? "greater than" : "at least", low);
  }
  if (high < std::numeric_limits<double>::infinity()) {
    text += fmt::format("{}{} {}", text.empty() ? "" : " and ",
                        high_open ? "less than" : "at most", high);
  }
  return text;
}

const ConfigKey* find_key(std::string_view name) {
  const auto keys = config_keys();
  const auto found = std::ranges::find(keys, name, &ConfigKey::name);
  return found == keys.end() ? nullptr : &*found;
}

const ConfigKey& nearest_key(std::string_view name) {
  return *std::ranges::min_element(config_keys(), {},
                                   [&](const ConfigKey& key) {
                                     return plan::edit_distance(name, key.name);
                                   });
}

std::string_view nearest_choice(const ConfigKey& key, std::string_view value) {
  return *std::ranges::min_element(key.choices, {}, [&](auto choice) {
    return plan::edit_distance(value, choice);
  });
}

std::string_view type_name(const ConfigField& field) {
  // In the order of the variant's alternatives.
  static constexpr std::string_view kNames[] = {
      "text",          "integer",     "number", "true or false",
      "true or false", "two numbers", "list"};
  return kNames[field.index()];
}

}  // namespace accordion
