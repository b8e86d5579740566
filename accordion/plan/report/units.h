// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

namespace accordion::plan {

inline constexpr double kGib = 1073741824.0;

/// "71.2 GiB". Memory of a plan is in GiB (2^30 bytes) everywhere, as devices
/// and allocators report it.
[[nodiscard]] std::string format_gib(double bytes);
/// "85.2 ms", "1.23 s", "3.40 hours", "21.3 days".
[[nodiscard]] std::string format_seconds(double seconds);
/// "6.74 billion", "4.19 million", "8,192".
[[nodiscard]] std::string format_count(double count);
/// Money: "0.47", "167,701", "1.26 million".
[[nodiscard]] std::string format_amount(double amount);
/// "12.3 %".
[[nodiscard]] std::string format_percent(double share);

/// `width` columns of which `share` are full, in eighths; share in [0, 1].
[[nodiscard]] std::string bar(double share, int width);

}  // namespace accordion::plan
