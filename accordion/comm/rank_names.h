// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string>
#include <vector>

namespace accordion::detail {

/// The numbers by which errors speak of the ranks of a group: those of the
/// mesh, which the user knows, rather than positions in the group.
class RankNames {
 public:
  /// `members` are the numbers by position; empty: the positions themselves.
  explicit RankNames(std::vector<int> members = {});

  [[nodiscard]] int operator[](int rank) const {
    return members_.empty() ? rank : members_[static_cast<std::size_t>(rank)];
  }
  /// "rank 3 of 4", or "rank 3 of ranks 1 and 3" in a group that leaves ranks
  /// out.
  [[nodiscard]] std::string one_of(int rank, int world_size) const;
  /// "rank 3", or "ranks 1, 3 and 5". Long lists are cut in the middle.
  [[nodiscard]] std::string list(std::span<const int> ranks) const;

 private:
  std::vector<int> members_;
};

}  // namespace accordion::detail
