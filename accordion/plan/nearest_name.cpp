// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/plan/nearest_name.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <numeric>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace accordion::plan {
namespace {

/// A name that was cut short is nearest to what it begins.
std::size_t distance(const std::string& wanted, std::string_view candidate) {
  const std::string name = normalized(candidate);
  return !wanted.empty() && name.starts_with(wanted)
             ? 0
             : edit_distance(wanted, name);
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // One row of the table at a time: row[j] is the distance from the part of `a`
  // read so far to the first j characters of `b`.
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

std::string_view nearest_name(std::string_view name,
                              std::span<const std::string_view> candidates) {
  const std::string wanted = normalized(name);
  return *std::min_element(candidates.begin(), candidates.end(),
                           [&](auto a, auto b) {
                             return distance(wanted, a) < distance(wanted, b);
                           });
}

std::string normalized(std::string_view name) {
  std::string result;
  for (const char c : name) {
    result.push_back(
        c == '_' || c == ' '
            ? '-'
            : static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
  }
  return result;
}

void fail_unknown(const std::string& what, std::string_view name,
                  std::span<const std::string_view> candidates,
                  std::span<const std::string_view> listed) {
  throw std::invalid_argument(fmt::format(
      "{} is not known; the nearest is '{}', and there are {}.", what,
      nearest_name(name, candidates), fmt::join(listed, ", ")));
}

std::int64_t nearest_divisor(std::int64_t total, std::int64_t value) {
  std::int64_t best = 1;
  for (std::int64_t low = 1; low * low <= total; ++low) {
    if (total % low != 0) {
      continue;
    }
    for (const std::int64_t divisor : {low, total / low}) {
      if (std::abs(divisor - value) < std::abs(best - value)) {
        best = divisor;
      }
    }
  }
  return best;
}

}  // namespace accordion::plan
