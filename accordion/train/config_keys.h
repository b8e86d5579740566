// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "accordion/train/train_config.h"

namespace accordion {

/// Where a key's value lives in a TrainConfig; the alternative is its type.
using ConfigField = std::variant<std::string*, std::int64_t*, double*, bool*,
                                 std::optional<bool>*, std::array<double, 2>*,
                                 std::vector<std::string>*>;

/// The numbers that a key accepts.
struct ConfigRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;   ///< `low` itself is not accepted
  bool high_open = false;  ///< `high` itself is not accepted

  [[nodiscard]] bool contains(double value) const;
  /// "at least 1", "greater than 0", "at least 0 and less than 1"; "" for all.
  [[nodiscard]] std::string describe() const;
};

/// The declaration of one key: all that is known of it stands here.
struct ConfigKey {
  std::string_view name;
  ConfigField (*field)(TrainConfig&);
  std::string_view doc;
  std::vector<std::string_view> choices = {};  ///< of a string; empty: any
  ConfigRange range = {};                      ///< of numbers
  /// Of a string: made absolute when read, unless it is one of the choices.
  bool is_path = false;
};

/// All keys, in the order in which files and help list them.
std::span<const ConfigKey> config_keys();

/// The key of that name; null where there is none.
const ConfigKey* find_key(std::string_view name);

/// The key whose name takes the fewest edits to reach.
const ConfigKey& nearest_key(std::string_view name);

/// The choice of a key that takes the fewest edits to reach.
std::string_view nearest_choice(const ConfigKey& key, std::string_view value);

/// "integer", "number", "true or false", "text", "two numbers", "list".
std::string_view type_name(const ConfigField& field);

}  // namespace accordion
