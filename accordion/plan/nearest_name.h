// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace accordion::plan {

/// Letters to add, drop or replace to turn `a` into `b`.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate that takes the fewest edits to become from `name`, for
/// messages. Requires at least one candidate.
[[nodiscard]] std::string_view nearest_name(
    std::string_view name, std::span<const std::string_view> candidates);

/// Lower case, '_' and ' ' as '-': names are alike that differ only in these.
[[nodiscard]] std::string normalized(std::string_view name);

/// Throws std::invalid_argument: `what` ("[find_link] Link 'IBB'") is not
/// known, the nearest of `candidates` and all of `listed`.
[[noreturn]] void fail_unknown(const std::string& what, std::string_view name,
                               std::span<const std::string_view> candidates,
                               std::span<const std::string_view> listed);

/// The item whose member `name` is `name`, normalized. Throws fail_unknown,
/// where `kind` begins the message: "[find_link] Link".
template <class Items>
[[nodiscard]] const auto& find_named(const Items& items, std::string_view name,
                                     std::string_view kind) {
  std::vector<std::string_view> names;
  for (const auto& item : items) {
    if (normalized(item.name) == normalized(name)) {
      return item;
    }
    names.push_back(item.name);
  }
  fail_unknown(std::string(kind) + " '" + std::string(name) + "'", name, names,
               names);
}

/// The divisor of `total` nearest to `value`, for messages of what must divide.
[[nodiscard]] std::int64_t nearest_divisor(std::int64_t total,
                                           std::int64_t value);

}  // namespace accordion::plan
