// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>

#include "accordion/comm/communicator.h"
#include "accordion/comm/elements.h"
#include "accordion/comm/square_sum.h"

namespace accordion::detail {

/// Stores the sums of one part, which arrive in pieces or at once.
class PartReducer {
 public:
  /// `past_cache` as in ReduceTarget.
  explicit PartReducer(const ReducePart& part, bool past_cache = false)
      : part_(part), past_cache_(past_cache) {}

  /// Reduces the next `numel` elements of `local`; every piece but the last is
  /// a multiple of kSquareLanes.
  void add(std::span<const void* const> sources, std::int64_t numel);
  /// The same for sums that are scaled and rounded to `dtype` already, and may
  /// be where they belong.
  void add_sums(const void* sums, DType dtype, std::int64_t numel);
  /// Once, at the end: hands over the sum of squares where it is asked for.
  void finish() const;

 private:
  [[nodiscard]] ReduceTarget next_target(double scale);

  const ReducePart part_;
  const bool past_cache_;
  std::int64_t done_ = 0;  // elements of local
  SquareSum squares_;
};

/// All of a part at once.
void reduce(std::span<const void* const> sources, const ReducePart& part,
            bool past_cache = false);

}  // namespace accordion::detail
