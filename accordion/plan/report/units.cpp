// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/report/units.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

namespace accordion::plan {
namespace {

/// Three digits that count, without an exponent.
std::string three_digits(double value) {
  const double size = std::abs(value);
  return fmt::format("{:.{}f}", value,
                     size >= 99.95   ? 0
                     : size >= 9.995 ? 1
                                     : 2);
}

std::string with_commas(double count) {
  std::string digits = fmt::format("{:.0f}", count);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0;
       at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

}  // namespace

std::string format_gib(double bytes) {
  return fmt::format("{:.1f} GiB", bytes / kGib);
}

std::string format_seconds(double seconds) {
  if (seconds < 1.0) {
    return three_digits(1e3 * seconds) + " ms";
  }
  if (seconds < 300.0) {
    return three_digits(seconds) + " s";
  }
  if (seconds < 2.0 * 86400.0) {
    return three_digits(seconds / 3600.0) + " hours";
  }
  return three_digits(seconds / 86400.0) + " days";
}

std::string format_count(double count) {
  if (count < 1e6) {
    return with_commas(count);
  }
  if (count < 1e9) {
    return three_digits(count / 1e6) + " million";
  }
  if (count < 1e12) {
    return three_digits(count / 1e9) + " billion";
  }
  return three_digits(count / 1e12) + " trillion";
}

std::string format_amount(double amount) {
  return amount < 1000.0 ? fmt::format("{:.2f}", amount) : format_count(amount);
}

std::string format_percent(double share) {
  return fmt::format("{:.1f} %", 100.0 * share);
}

std::string bar(double share, int width) {
  static constexpr std::array<std::string_view, 8> kEighths = {
      "", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const auto eighths =
      static_cast<int>(std::lround(std::clamp(share, 0.0, 1.0) * 8.0 * width));
  std::string text;
  for (int full = 0; full < eighths / 8; ++full) {
    text += "█";
  }
  return text + std::string(kEighths[static_cast<std::size_t>(eighths % 8)]);
}

}  // namespace accordion::plan
