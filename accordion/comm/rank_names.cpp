// SPDX-License-Identifier: BSD-3-Clause
#include "accordion/comm/rank_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>

namespace accordion::detail {
namespace {

constexpr std::size_t kMostListed = 12;

std::vector<int> without_identity(std::vector<int> members) {
  std::vector<int> identity(members.size());
  std::iota(identity.begin(), identity.end(), 0);
  return members == identity ? std::vector<int>() : members;
}

std::string list_numbers(std::span<const int> numbers) {
  if (numbers.empty()) {
    return "no rank";
  }
  if (numbers.size() == 1) {
    return fmt::format("rank {}", numbers[0]);
  }
  if (numbers.size() > kMostListed) {
    return fmt::format("{} ranks ({}, …, {})", numbers.size(),
                       fmt::join(numbers.first(kMostListed - 1), ", "),
                       numbers.back());
  }
  return fmt::format("ranks {} and {}",
                     fmt::join(numbers.first(numbers.size() - 1), ", "),
                     numbers.back());
}

}  // namespace

// Rank r of a group of all ranks up to W is called r by everybody.
RankNames::RankNames(std::vector<int> members)
    : members_(without_identity(std::move(members))) {}

std::string RankNames::one_of(int rank, int world_size) const {
  return members_.empty() ? fmt::format("rank {} of {}", rank, world_size)
                          : fmt::format("rank {} of {}", (*this)[rank],
                                        list_numbers(members_));
}

std::string RankNames::list(std::span<const int> ranks) const {
  std::vector<int> numbers;
  for (const int rank : ranks) {
    numbers.push_back((*this)[rank]);
  }
  return list_numbers(numbers);
}

}  // namespace accordion::detail
