// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace accordion::plan {

/// A count as a factor of bytes or seconds; exact up to 2^53.
[[nodiscard]] inline double real(std::int64_t count) {
  return static_cast<double>(count);
}

}  // namespace accordion::plan
