// SPDX-License-Identifier: BSD-3-Clause
//
// Reading, writing and listing the keys that plan_keys.cpp declares.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include <fmt/format.h>

#include "accordion/plan/nearest_name.h"
#include "accordion/plan/question/plan_keys.h"

namespace accordion::plan {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw std::invalid_argument("[plan] " + what);
}

const PlanKey& find_plan_key(std::string_view name) {
  std::vector<std::string_view> names;
  for (const PlanKey& key : plan_keys()) {
    if (key.name == name) {
      return key;
    }
    names.push_back(key.name);
  }
  fail(
      fmt::format("Unknown key '{}'. Did you mean '{}'? `accordion plan "
                  "--help-keys` lists all.",
                  name, nearest_name(name, names)));
}

std::size_t choice(const PlanKey& key, std::string_view value) {
  const auto found = std::find_if(
      key.choices.begin(), key.choices.end(),
      [&](auto each) { return normalized(each) == normalized(value); });
  if (found == key.choices.end()) {
    fail(fmt::format("{} is '{}', but must be one of {}; the nearest is '{}'.",
                     key.name, value, fmt::join(key.choices, ", "),
                     nearest_name(value, key.choices)));
  }
  return static_cast<std::size_t>(found - key.choices.begin());
}

/// Numbers as people write them: 4096, 1e12, 2.5.
double number(const PlanKey& key, std::string_view value) {
  double result = 0.0;
  const auto [end, error] =
      std::from_chars(value.data(), value.data() + value.size(), result);
  if (error != std::errc{} || end != value.data() + value.size() ||
      !std::isfinite(result)) {
    fail(fmt::format("{} is '{}', but must be a number.", key.name, value));
  }
  return result;
}

/// Reads one value into the field of its type.
struct Read {
  const PlanKey& key;
  std::string_view value;

  template <typename Integer>
  requires std::is_integral_v<Integer>
  void operator()(Integer* field) const {
    const double read = number(key, value);
    const double limit =
        sizeof(Integer) < 8 ? std::numeric_limits<int>::max() : 9e15;
    if (read != std::floor(read) || std::abs(read) > limit) {
      const double nearest = std::clamp(std::round(read), -limit, limit);
      fail(
          fmt::format("{} is {}, but must be a whole number; the nearest is "
                      "{:.0f}.",
                      key.name, value, nearest));
    }
    *field = static_cast<Integer>(read);
  }
  void operator()(double* field) const {
    *field = number(key, value);
    if (*field < 0.0) {
      fail(
          fmt::format("{} is {}, but must be at least 0; the nearest valid "
                      "value is 0.",
                      key.name, value));
    }
  }
  void operator()(bool* field) const {
    if (value != "true" && value != "false") {
      const std::string_view names[] = {"true", "false"};
      fail(
          fmt::format("{} is '{}', but must be true or false; the nearest is "
                      "{}.",
                      key.name, value, nearest_name(value, names)));
    }
    *field = value == "true";
  }
  void operator()(Sharding* field) const { *field = parse_sharding(value); }
  void operator()(SoftwareStack* field) const { *field = find_stack(value); }
  template <typename Enum>
  requires std::is_enum_v<Enum>
  void operator()(Enum* field) const {
    *field = static_cast<Enum>(choice(key, value));
  }
};

struct Print {
  const PlanKey& key;

  std::string operator()(const bool* field) const {
    return *field ? "true" : "false";
  }
  std::string operator()(const Sharding* field) const {
    return std::string(to_string(*field));
  }
  std::string operator()(const SoftwareStack* field) const {
    return field->name;
  }
  template <typename T>
  std::string operator()(const T* field) const {
    if constexpr (std::is_enum_v<T>) {
      return std::string(key.choices[static_cast<std::size_t>(*field)]);
    } else {
      return fmt::format("{}", *field);
    }
  }
};

struct TypeName {
  std::string operator()(const bool*) const { return "true or false"; }
  std::string operator()(const double*) const { return "number"; }
  template <typename T>
  std::string operator()(const T*) const {
    return "whole number";
  }
};

/// Breaks words into lines of at most 78 characters, indented.
std::string wrapped(std::string_view text) {
  std::string lines;
  std::string line = "   ";
  while (!text.empty()) {
    const auto space = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, space);
    text.remove_prefix(std::min(space + 1, text.size()));
    if (line.size() + 1 + word.size() > 78) {
      lines += line + "\n";
      line = "   ";
    }
    line += ' ';
    line += word;
  }
  return lines + line + "\n";
}

}  // namespace

std::string value_of(const PlanKey& key, const PlanSettings& settings) {
  if (key.name == "strategy" && settings.hybrid) {
    return "hybrid";
  }
  PlanSettings copy = settings;
  return std::visit(Print{key}, key.field(copy));
}

void set_key(std::string_view assignment, PlanSettings& settings) {
  const auto equals = assignment.find('=');
  if (equals == std::string_view::npos) {
    fail(fmt::format("'{}' is no KEY=VALUE; write micro_batch=4.", assignment));
  }
  const PlanKey& key = find_plan_key(assignment.substr(0, equals));
  const std::string_view value = assignment.substr(equals + 1);
  if (key.name == "strategy") {
    settings.hybrid =
        normalized(value) == "hybrid" || normalized(value) == "hsdp";
  }
  std::visit(Read{key, value}, key.field(settings));
}

std::string plan_keys_help() {
  std::string text = "Keys of KEY=VALUE behind `accordion plan MODEL`.\n";
  PlanSettings defaults;
  for (const PlanKey& key : plan_keys()) {
    const std::string type =
        key.choices.empty() ? std::visit(TypeName{}, key.field(defaults))
                            : fmt::format("{}", fmt::join(key.choices, " | "));
    const std::string otherwise = key.otherwise.empty()
                                      ? value_of(key, defaults)
                                      : std::string(key.otherwise);
    text += fmt::format("\n{}  ({}; default {})\n{}", key.name, type, otherwise,
                        wrapped(key.doc));
  }
  return text;
}

}  // namespace accordion::plan
