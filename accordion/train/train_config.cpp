// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/train_config.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

// Some of what toml++ asserts, or lets the compiler assume, depends on the text
// (its issue 301: "[[[a]]]"). Without either, it reports an error.
#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(expr) static_assert(true)
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

#include "accordion/train/config_keys.h"

namespace accordion {
namespace {

namespace fs = std::filesystem;

/// Steps while no key said how many: no value that a key can have.
constexpr std::int64_t kNotGiven = -1;

/// Where a value was read: "demo.toml:12" or "command line", and the folder
/// from which its relative paths start.
struct Origin {
  std::string place;
  fs::path folder;
};

[[noreturn]] void fail(const Origin& origin, const std::string& problem) {
  throw std::invalid_argument(
      fmt::format("[config] {}: {}", origin.place, problem));
}

std::string quoted_list(const std::vector<std::string_view>& words) {
  std::vector<std::string> quoted;
  for (const std::string_view word : words) {
    quoted.push_back(fmt::format("\"{}\"", word));
  }
  return fmt::format("{}", fmt::join(quoted, ", "));
}

/// Whether a text can be printed, and read again.
bool is_utf8(const std::string& text) {
  try {
    (void)nlohmann::json(text).dump();
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

const ConfigKey& known_key(std::string_view name, const Origin& origin) {
  if (const ConfigKey* key = find_key(name)) {
    return *key;
  }
  fail(origin,
       fmt::format("unknown key '{}'. Did you mean '{}'? `accordion train "
                   "--help-config` lists every key.",
                   name, nearest_key(name).name));
}

/// A value as an error quotes it. Lists and tables are told by their kind:
/// toml++ 3.3 measures them before it prints them, and what it computes of a
/// number below 1 or of the smallest integer is undefined.
std::string shown(const toml::node& node) {
  if (const toml::array* const array = node.as_array()) {
    return array->empty() ? "an empty list" : "a list";
  }
  if (node.is_table()) {
    return "a table";
  }
  std::ostringstream value;
  node.visit([&](const auto& concrete) { value << concrete; });
  return value.str();
}

/// Rounded where it is an integer beyond 2^53, which toml++ hands out as an
/// integer alone.
double number_in(const toml::node& node) {
  return node.is_integer() ? static_cast<double>(node.ref<std::int64_t>())
                           : node.ref<double>();
}

void check_range(const ConfigKey& key, double value, const Origin& origin) {
  if (!key.range.contains(value)) {
    fail(origin, fmt::format("'{}' is {}; it must be {}.", key.name, value,
                             key.range.describe()));
  }
}

/// Stores a TOML value into the field of a key, by the field's type.
class Assign {
 public:
  Assign(const ConfigKey& key, const toml::node& node, const Origin& origin)
      : key_(key), node_(node), origin_(origin) {}

  void operator()(std::string* field) const {
    if (!node_.is_string()) {
      wrong_type("text");
    }
    *field = checked(node_.ref<std::string>());
  }

  void operator()(std::vector<std::string>* field) const {
    field->clear();
    if (node_.is_string()) {
      field->push_back(checked(node_.ref<std::string>()));
      return;
    }
    const toml::array* const array = node_.as_array();
    if (array == nullptr || !array->is_homogeneous<std::string>()) {
      wrong_type("text, or a list of texts in brackets");
    }
    for (const toml::node& element : *array) {
      field->push_back(checked(element.ref<std::string>()));
    }
  }

  void operator()(std::int64_t* field) const {
    if (!node_.is_integer()) {
      wrong_type("an integer");
    }
    *field = node_.ref<std::int64_t>();
    check_range(key_, static_cast<double>(*field), origin_);
  }

  void operator()(double* field) const {
    if (!node_.is_number()) {
      wrong_type("a number");
    }
    *field = number_in(node_);
    check_range(key_, *field, origin_);
  }

  void operator()(bool* field) const {
    if (!node_.is_boolean()) {
      wrong_type("true or false");
    }
    *field = node_.ref<bool>();
  }

  void operator()(std::optional<bool>* field) const {
    bool value = false;
    (*this)(&value);
    *field = value;
  }

  void operator()(std::array<double, 2>* field) const {
    const toml::array* const array = node_.as_array();
    if (array == nullptr || array->size() != 2 || !array->get(0)->is_number() ||
        !array->get(1)->is_number()) {
      wrong_type("two numbers in brackets");
    }
    for (std::size_t i = 0; i < 2; ++i) {
      (*field)[i] = number_in(*array->get(i));
      check_range(key_, (*field)[i], origin_);
    }
  }

 private:
  /// A text as the field holds it: one of the choices, a whole path, or any.
  [[nodiscard]] std::string checked(const std::string& value) const {
    if (!is_utf8(value)) {
      fail(origin_, fmt::format("'{}' is no text in UTF-8.", key_.name));
    }
    const auto& choices = key_.choices;
    if (std::ranges::find(choices, value) != choices.end()) {
      return value;
    }
    if (!choices.empty() && !key_.is_path) {
      fail(origin_, fmt::format("'{}' is \"{}\"; valid values: {}. Did you "
                                "mean \"{}\"?",
                                key_.name, value, quoted_list(choices),
                                nearest_choice(key_, value)));
    }
    if (key_.is_path && !value.empty()) {
      return (origin_.folder / value).lexically_normal().string();
    }
    return value;
  }

  [[noreturn]] void wrong_type(std::string_view wanted) const {
    fail(origin_, fmt::format("'{}' wants {}, got {}.", key_.name, wanted,
                              shown(node_)));
  }

  const ConfigKey& key_;
  const toml::node& node_;
  const Origin& origin_;
};

void assign(TrainConfig& config, std::string_view name, const toml::node& node,
            const Origin& origin) {
  const ConfigKey& key = known_key(name, origin);
  std::visit(Assign(key, node, origin), key.field(config));
}

void assign_table(TrainConfig& config, const toml::table& table,
                  const std::string& prefix, const fs::path& file) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    const toml::table* const inner = node.as_table();
    if (inner != nullptr && find_key(name) == nullptr && !inner->empty()) {
      assign_table(config, *inner, name + ".", file);
      continue;
    }
    const Origin origin = {
        fmt::format("{}:{}", file.string(), key.source().begin.line),
        fs::absolute(file).parent_path()};
    assign(config, name, node, origin);
  }
}

/// Whether a value typed in a shell is text without quotes.
bool is_bare_text(std::string_view value, const ConfigField& field) {
  const bool quoted = value.starts_with('"') || value.starts_with('\'');
  const bool is_list = std::holds_alternative<std::vector<std::string>*>(field);
  return (std::holds_alternative<std::string*>(field) && !quoted) ||
         (is_list && !quoted && !value.starts_with('['));
}

/// A value as typed in a shell: text needs no quotes.
void assign_override(TrainConfig& config, const std::string& override_text) {
  const Origin origin = {"command line", fs::current_path()};
  const auto equals = override_text.find('=');
  if (equals == std::string::npos) {
    fail(origin, fmt::format("'{}' is no KEY=VALUE. Write for example "
                             "train.steps=100.",
                             override_text));
  }
  const std::string name = override_text.substr(0, equals);
  const std::string value = override_text.substr(equals + 1);
  const ConfigKey& key = known_key(name, origin);
  if (is_bare_text(value, key.field(config))) {
    assign(config, name, toml::value<std::string>(value), origin);
    return;
  }
  toml::table table;
  try {
    table = toml::parse(fmt::format("value = {}", value));
  } catch (const toml::parse_error&) {
    fail(origin, fmt::format("'{}' wants {}, got '{}'.", name,
                             type_name(key.field(config)), value));
  }
  assign(config, name, *table.get("value"), origin);
}

}  // namespace

TrainConfig load_config(const fs::path& file,
                        std::span<const std::string> overrides) {
  std::ifstream stream(file, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(stream), {});
  if (!stream.is_open() || stream.bad()) {
    throw std::invalid_argument(
        fmt::format("[config] Cannot read '{}'. Name a TOML file, for example "
                    "configs/demo.toml.",
                    file.string()));
  }
  return parse_config(text, file, overrides);
}

TrainConfig parse_config(std::string_view text, const fs::path& name,
                         std::span<const std::string> overrides) {
  TrainConfig config;
  const std::int64_t default_steps =
      std::exchange(config.train.steps, kNotGiven);
  try {
    assign_table(config, toml::parse(text), "", name);
  } catch (const toml::parse_error& error) {
    const Origin origin = {
        fmt::format("{}:{}", name.string(), error.source().begin.line), {}};
    fail(origin, fmt::format("this is no TOML: {}.", error.description()));
  }
  for (const std::string& override_text : overrides) {
    assign_override(config, override_text);
  }
  if (config.train.steps == kNotGiven) {
    config.train.steps = config.train.epochs > 0 ? 0 : default_steps;
  }
  validate_config(config, name.string());
  return config;
}

}  // namespace accordion
