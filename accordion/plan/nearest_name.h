// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace accordion::plan {

/// The candidate that takes the fewest edits to become from `name`, for
/// messages. Requires at least one candidate.
[[nodiscard]] std::string_view nearest_name(
    std::string_view name, std::span<const std::string_view> candidates);

/// Lower case, '_' and ' ' as '-': names are alike that differ only in these.
[[nodiscard]] std::string normalized(std::string_view name);

/// The divisor of `total` nearest to `value`, for messages of what must divide.
[[nodiscard]] std::int64_t nearest_divisor(std::int64_t total,
                                           std::int64_t value);

}  // namespace accordion::plan
