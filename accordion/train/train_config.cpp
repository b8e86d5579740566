// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/train/train_config.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include "accordion/train/config_keys.h"

namespace accordion {
namespace {

namespace fs = std::filesystem;

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

const ConfigKey& known_key(std::string_view name, const Origin& origin) {
  if (const ConfigKey* key = find_key(name)) {
    return *key;
  }
  fail(origin,
       fmt::format("unknown key '{}'. Did you mean '{}'? `accordion train "
                   "--help-config` lists every key.",
                   name, nearest_key(name).name));
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
    std::string value = node_.ref<std::string>();
    const auto& choices = key_.choices;
    if (!choices.empty() &&
        std::ranges::find(choices, value) == choices.end()) {
      fail(origin_, fmt::format("'{}' is \"{}\"; valid values: {}.", key_.name,
                                value, quoted_list(choices)));
    }
    if (key_.is_path && !value.empty()) {
      value = (origin_.folder / value).lexically_normal().string();
    }
    *field = std::move(value);
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
    *field = *node_.value<double>();
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
      (*field)[i] = *array->get(i)->value<double>();
      check_range(key_, (*field)[i], origin_);
    }
  }

 private:
  [[noreturn]] void wrong_type(std::string_view wanted) const {
    std::ostringstream value;
    node_.visit([&](const auto& concrete) { value << concrete; });
    fail(origin_,
         fmt::format("'{}' wants {}, got {}.", key_.name, wanted, value.str()));
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
  const bool is_text = std::holds_alternative<std::string*>(key.field(config));
  if (is_text && !value.starts_with('"') && !value.starts_with('\'')) {
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

/// Checks what no single key can tell.
void validate(const TrainConfig& config, const fs::path& file) {
  const Origin origin = {file.string(), {}};
  if (config.data.path.empty()) {
    fail(origin, "'data.path' is not set. Name the text to train on.");
  }
  if (config.model.config.empty()) {
    fail(origin, "'model.config' is not set. Name a Hugging Face config.json.");
  }
  if (config.train.steps == 0 && config.train.seconds == 0) {
    fail(origin,
         "'train.steps' and 'train.seconds' are both 0, so that training "
         "would not end. Set one of them.");
  }
  if (config.train.steps > 0 &&
      config.schedule.warmup_steps > config.train.steps) {
    fail(origin, fmt::format("'schedule.warmup_steps' is {}, more than "
                             "'train.steps' ({}).",
                             config.schedule.warmup_steps, config.train.steps));
  }
  if (config.eval.every > 0 && config.data.order == "strided") {
    fail(origin,
         "'data.order' is \"strided\", which holds nothing out, but "
         "'eval.every' is set. Use \"shuffled\", or eval.every = 0.");
  }
  if (config.eval.every > 0 && config.data.validation_fraction == 0) {
    fail(origin,
         "'eval.every' is set, but 'data.validation_fraction' is 0, so that "
         "nothing is held out. Set both or neither.");
  }
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
  validate(config, name);
  return config;
}

}  // namespace accordion
