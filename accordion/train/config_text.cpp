// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "accordion/train/config_keys.h"
#include "accordion/train/train_config.h"

namespace accordion {
namespace {

constexpr std::size_t kWidth = 78;
constexpr std::string_view kIndent = "    ";

/// Text, or a list of it, as TOML spells it: as JSON does, whose escapes TOML
/// knows, but for the one control character that JSON leaves bare.
std::string toml_text(const nlohmann::json& value) {
  std::string text = value.dump();
  for (auto at = text.find('\x7f'); at != std::string::npos;
       at = text.find('\x7f', at)) {
    text.replace(at, 1, "\\u007f");
  }
  return text;
}

/// A value as a TOML file spells it; "" for one that is unset.
struct Print {
  std::string operator()(const std::string* text) const {
    return toml_text(*text);
  }
  std::string operator()(const std::int64_t* number) const {
    return fmt::format("{}", *number);
  }
  std::string operator()(const double* number) const {
    return fmt::format("{}", *number);
  }
  std::string operator()(const bool* flag) const {
    return *flag ? "true" : "false";
  }
  std::string operator()(const std::optional<bool>* flag) const {
    return *flag ? (*this)(&**flag) : "";
  }
  std::string operator()(const std::array<double, 2>* pair) const {
    return fmt::format("[{}, {}]", (*pair)[0], (*pair)[1]);
  }
  /// One text stands alone, as most people write it.
  std::string operator()(const std::vector<std::string>* list) const {
    if (list->size() == 1) {
      return (*this)(&list->front());
    }
    return toml_text(*list);
  }
};

std::string value_of(const ConfigKey& key, TrainConfig config) {
  const std::string text = std::visit(Print(), key.field(config));
  return text.empty() ? "unset" : text;
}

std::string type_of(const ConfigKey& key) {
  if (!key.choices.empty()) {
    return fmt::format("{}{}", fmt::join(key.choices, " | "),
                       key.is_path ? " | path" : "");
  }
  TrainConfig defaults;
  if (key.is_path) {
    return std::holds_alternative<std::string*>(key.field(defaults))
               ? "path"
               : "path or list of paths";
  }
  const std::string type(type_name(key.field(defaults)));
  const std::string range = key.range.describe();
  return range.empty() ? type : type + " " + range;
}

/// Breaks `text` at spaces into indented lines of at most kWidth characters.
std::string wrapped(std::string_view text) {
  std::string lines;
  std::string line(kIndent);
  while (!text.empty()) {
    const auto space = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, space);
    text.remove_prefix(std::min(space + 1, text.size()));
    if (line.size() + word.size() + 1 > kWidth) {
      lines += line + "\n";
      line = kIndent;
    }
    line += line.size() > kIndent.size() ? " " : "";
    line += word;
  }
  return lines + line + "\n";
}

}  // namespace

std::string to_toml(const TrainConfig& config) {
  TrainConfig copy = config;
  std::string text;
  std::string_view section;
  for (const ConfigKey& key : config_keys()) {
    const auto dot = key.name.find('.');
    if (key.name.substr(0, dot) != section) {
      text += section.empty() ? "" : "\n";
      section = key.name.substr(0, dot);
      text += fmt::format("[{}]\n", section);
    }
    const std::string value = std::visit(Print(), key.field(copy));
    const std::string_view leaf = key.name.substr(dot + 1);
    text += value.empty() ? fmt::format("# {} is unset\n", leaf)
                          : fmt::format("{} = {}\n", leaf, value);
  }
  return text;
}

std::vector<std::string> config_changes(const TrainConfig& before,
                                        const TrainConfig& now) {
  std::vector<std::string> changes;
  for (const ConfigKey& key : config_keys()) {
    const std::string was = value_of(key, before);
    const std::string is = value_of(key, now);
    if (is != was) {
      changes.push_back(fmt::format("{} = {}, was {}", key.name, is, was));
    }
  }
  return changes;
}

std::string config_help() {
  std::string text =
      "Keys of a configuration file, and of KEY=VALUE on the command line.\n"
      "Relative paths start from the folder of the file; on the command line,\n"
      "from the working folder.\n";
  for (const ConfigKey& key : config_keys()) {
    text += fmt::format("\n{}  ({}; default {})\n{}", key.name, type_of(key),
                        value_of(key, {}), wrapped(key.doc));
  }
  return text;
}

}  // namespace accordion
